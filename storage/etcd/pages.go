package etcd

import (
	"context"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	// pageSize is the most keys of a page. etcd counts the rest of the range for every
	// page, so small pages cost more than they save.
	pageSize = 10_000
	// largeValuesPage is the size of the first page where values may be large.
	largeValuesPage = 500
	// pageBytes is the size of a page's values above which the next page requests fewer
	// keys.
	pageBytes = 16 << 20
)

// Range selects all keys under a prefix, as of one revision.
type Range struct {
	Prefix string
	// Revision is the revision to read at; zero means the newest.
	Revision int64
	KeysOnly bool
	// LargeValues makes the first page small.
	LargeValues bool
	// Whole reads the range as one page, however large. A range of several pages fails if
	// etcd compacts its revision meanwhile.
	Whole bool
}

// Options are the options of a request for the range.
func (r Range) Options() []clientv3.OpOption {
	options := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(r.Prefix)), clientv3.WithRev(r.Revision)}
	if r.KeysOnly {
		options = append(options, clientv3.WithKeysOnly())
	}
	return options
}

// Get reads one page from etcd, as clientv3.KV does.
type Get func(ctx context.Context, key string, options ...clientv3.OpOption) (*clientv3.GetResponse, error)

// Pages reads a range in the order of its keys, page by page, all as of the
// revision of the first page, whose header it returns. An error of each ends the
// reading.
func (r Range) Pages(ctx context.Context, get Get, each func(page []*mvccpb.KeyValue) error) (*etcdserverpb.ResponseHeader, error) {
	limit := pageSize
	switch {
	case r.Whole:
		limit = 0
	case r.LargeValues:
		limit = largeValuesPage
	}
	var header *etcdserverpb.ResponseHeader
	for from := r.Prefix; ; {
		page, err := get(ctx, from, append(r.Options(), clientv3.WithLimit(int64(limit)))...)
		if err != nil {
			return nil, err
		}
		if header == nil {
			header = page.Header
		}
		if r.Revision == 0 {
			r.Revision = header.Revision
		}
		if err := each(page.Kvs); err != nil {
			return nil, err
		}
		n := len(page.Kvs)
		if !page.More || n == 0 {
			return header, nil
		}
		from = string(page.Kvs[n-1].Key) + "\x00"
		limit = nextLimit(page.Kvs)
	}
}

// nextLimit returns how many keys the next page requests.
func nextLimit(page []*mvccpb.KeyValue) int {
	size := 0
	for _, kv := range page {
		size += len(kv.Value)
	}
	return max(1, min(pageSize, len(page)*pageBytes/max(size, 1)))
}
