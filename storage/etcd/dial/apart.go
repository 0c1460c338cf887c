package dial

import (
	"context"
	"math/rand/v2"
	"strconv"

	"google.golang.org/grpc/metadata"
)

// Apart returns a context whose watches have a stream of their own. Watches of a
// client share one stream otherwise, and etcd goes by the token that was told
// when it was opened: one that joins a stream later than the token lives is
// refused, for as long as another watch keeps the stream open. Ask for the
// progress of a watch by the context that it was begun with.
func Apart(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "portolan-watch", strconv.FormatUint(rand.Uint64(), 36))
}
