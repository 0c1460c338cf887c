package dial

import (
	"context"
	"math/rand/v2"
	"strconv"

	"google.golang.org/grpc/metadata"
)

// OwnStream returns a context whose watches have a stream of their own. By default all
// watches of a client share one stream, and etcd checks the token that the client had
// when it opened the stream. Once that token has expired, etcd refuses every further
// watch on the stream, for as long as another watch keeps it open. Request the progress
// of a watch with the context of the watch.
// https://github.com/etcd-io/etcd/issues/12385
func OwnStream(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "portolan-watch", strconv.FormatUint(rand.Uint64(), 36))
}
