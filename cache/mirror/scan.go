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
)

const (
	// pageSize is large because etcd counts the rest of the range for every
	// page: small pages cost the square of the number of keys.
	pageSize = 10_000
	// callTimeout bounds one call, one page, and the wait for more of a stream.
	callTimeout = 15 * time.Second
)

// errStalled: a stream of etcd brought nothing for callTimeout.
var errStalled = errors.New("etcd stopped in the middle of a list")

// pairs takes some keys and values of a range; an error ends the reading.
type pairs func(kvs []*mvccpb.KeyValue) error

// query is a range of etcd to be read as of one revision.
type query struct {
	prefix   string
	revision int64 // 0 is the newest
	keysOnly bool
	// inOne asks for one answer, however large: what is read in pages or as a
	// stream fails where its revision is compacted meanwhile.
	inOne bool
}

func (q query) options(more ...clientv3.OpOption) []clientv3.OpOption {
	more = append(more, clientv3.WithRange(clientv3.GetPrefixRangeEnd(q.prefix)))
	if q.keysOnly {
		more = append(more, clientv3.WithKeysOnly())
	}
	return more
}

// scan gives each the pairs of a query in the order of their keys: streamed
// where the server can, which was added in etcd 3.7 and is not there in process,
// else in pages.
func (c *Cache) scan(ctx context.Context, q query, each pairs) (*etcdserverpb.ResponseHeader, error) {
	if !q.inOne {
		header, err := c.stream(ctx, q, each)
		if status.Code(err) != codes.Unimplemented {
			return header, err
		}
	}
	return c.pages(ctx, q, each)
}

// stream reads a range by one call that sends it in pieces. Only the last piece
// has a header. The sender waits for its reader, so the stream is read to its
// end whatever happens.
func (c *Cache) stream(ctx context.Context, q query, each pairs) (header *etcdserverpb.ResponseHeader, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := time.AfterFunc(callTimeout, func() { cancel(errStalled) })
	defer stalled.Stop()
	pieces, err := c.client.GetStream(ctx, q.prefix, q.options(clientv3.WithRev(q.revision))...)
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
		c.hear()
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

// pages reads a range page by page, all at the revision of the first.
func (c *Cache) pages(ctx context.Context, q query, each pairs) (*etcdserverpb.ResponseHeader, error) {
	limit := int64(pageSize)
	if q.inOne {
		limit = 0
	}
	var header *etcdserverpb.ResponseHeader
	for from, revision := q.prefix, q.revision; ; {
		page, err := c.page(ctx, from, q.options(clientv3.WithLimit(limit), clientv3.WithRev(revision)))
		if err != nil {
			return nil, fmt.Errorf("from %q at revision %d: %w", from, revision, err)
		}
		if header == nil {
			header = page.Header
			if revision == 0 {
				revision = header.Revision
			}
		}
		if err := each(page.Kvs); err != nil {
			return nil, err
		}
		if !page.More {
			return header, nil
		}
		from = string(page.Kvs[len(page.Kvs)-1].Key) + "\x00"
	}
}

func (c *Cache) page(ctx context.Context, from string, options []clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	page, err := c.client.Get(ctx, from, options...)
	if err == nil {
		c.hear()
	}
	return page, err
}
