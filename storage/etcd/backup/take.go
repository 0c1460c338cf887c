package backup

import (
	"context"
	"errors"
	"fmt"
	"io"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/etcd"
)

// Take begins to read a snapshot of the store behind a client. The snapshot has at least
// all writes up to the returned revision, which covers every write acknowledged before
// the call. The context bounds the reading too; the caller closes the body.
func Take(ctx context.Context, client *clientv3.Client) (body io.ReadCloser, revision int64, err error) {
	store, err := etcd.ReadInstance(ctx, client)
	if err != nil {
		return nil, 0, explain(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	response, err := client.SnapshotWithVersion(ctx)
	if err != nil {
		cancel()
		return nil, 0, explain(err)
	}
	return &snapshotReader{response.Snapshot, cancel}, store.Revision, nil
}

// snapshotReader is the stream of a snapshot. Close cancels its call.
type snapshotReader struct {
	io.ReadCloser
	cancel context.CancelFunc
}

// Close implements io.Closer.
func (t *snapshotReader) Close() error {
	t.cancel()
	return t.ReadCloser.Close()
}

// explain says what to do about an error of etcd.
func explain(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return fmt.Errorf("snapshot: etcd does not let this server's user take one, since it holds the data of all users: "+
			"let an etcd user of the role root do it, with etcdctl snapshot save FILE: %w", err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("snapshot: %w", err)
	default:
		return fmt.Errorf("snapshot: %w: %w", storage.ErrUnavailable, err)
	}
}
