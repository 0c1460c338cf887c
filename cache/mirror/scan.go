package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/storage/etcd"
)

// callTimeout bounds one call, one page, and the wait for the next piece of a stream.
const callTimeout = 15 * time.Second

// errStalled: a stream of etcd brought nothing for callTimeout.
var errStalled = errors.New("etcd stopped in the middle of a list")

// pairs receives some keys and values of a range; an error ends the reading.
type pairs func(kvs []*mvccpb.KeyValue) error

// scan calls each with the pairs of a range in key order: as a stream if the server has
// one, else in pages. etcd has streams since 3.7, but not in process. A stream fails if
// etcd compacts its revision meanwhile, so a range to be read whole is not streamed.
func (c *Cache) scan(ctx context.Context, r etcd.Range, each pairs) (*etcdserverpb.ResponseHeader, error) {
	if !r.Whole {
		header, err := c.stream(ctx, r, each)
		if status.Code(err) != codes.Unimplemented {
			return header, err
		}
	}
	return r.Pages(ctx, c.get, each)
}

// stream reads a range by one call with several responses. Only the last one has a
// header. The sender waits for its reader, so stream drains it in any case.
func (c *Cache) stream(ctx context.Context, r etcd.Range, each pairs) (header *etcdserverpb.ResponseHeader, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(callTimeout, func() { cancel(errStalled) })
	defer stalled.Stop()
	pieces, err := c.client.GetStream(ctx, r.Prefix, r.Options()...)
	if err != nil {
		return nil, err
	}
	defer func() {
		cancel(nil)
		for range pieces {
		}
	}()
	for piece := range pieces {
		if err := piece.Err(); err != nil {
			if errors.Is(context.Cause(ctx), errStalled) {
				err = errStalled
			}
			return nil, err
		}
		c.markHeard()
		stalled.Reset(callTimeout)
		if header = piece.Header; len(piece.Kvs) == 0 {
			continue
		}
		if err := each(piece.Kvs); err != nil {
			return nil, err
		}
	}
	if header == nil {
		return nil, errors.New("etcd ended a list before its end")
	}
	return header, nil
}

// get reads one page.
func (c *Cache) get(ctx context.Context, from string, options ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	page, err := c.client.Get(ctx, from, options...)
	if err != nil {
		return nil, fmt.Errorf("from %q: %w", from, err)
	}
	c.markHeard()
	return page, nil
}
