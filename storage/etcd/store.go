package etcd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/schema"
)

var (
	_ storage.ConfigStore = (*Store)(nil)
	_ storage.Batcher     = (*Store)(nil)
	_ storage.Historian   = (*Store)(nil)
)

// The default limits of etcd.
const (
	StockMaxTxnOps       = 128
	StockMaxRequestBytes = 3 << 19
)

// Options of a store.
type Options struct {
	// Schemas are the kinds to serve; they are required. The store ignores objects of
	// other kinds.
	Schemas schema.Set
	// Domain is the DNS suffix of the mesh, set on every object that is read.
	Domain string
	// Now is the clock of creation times; nil is time.Now.
	Now func() time.Time
	// MaxTxnOps and MaxRequestBytes are --max-txn-ops and --max-request-bytes of the
	// server; 0 means the default of etcd. The send limit of the gRPC client, 2 MiB by
	// default, has to fit the latter.
	MaxTxnOps, MaxRequestBytes int
	// RequestTimeout bounds every read, each page of a list, and every mutation with all
	// its attempts; 0 is ten seconds. A batch has a millisecond more for each operation.
	// It is at most half of storage.HistoryGrace, so that a writer in doubt still finds its
	// record.
	RequestTimeout time.Duration
	// Addresses are the ranges from which hosts of ServiceEntries without an address get
	// one, in the transaction that writes the object. Without ranges no host gets or
	// loses one.
	Addresses address.Ranges
	// WithoutHistory keeps no history: the record of a batch says only that it has landed, and
	// Prune removes it soon after. What such a store holds can be made again: it goes on where
	// it was emptied.
	WithoutHistory bool
	// Log gets messages about stored values that cannot be decoded, and about hosts for
	// which no address is free; nil discards them.
	Log *slog.Logger
}

// Store is a store on etcd. It remembers some values to save reads (recent.go), and
// keeps nothing else. The caller closes the client. Many goroutines may use a Store.
type Store struct {
	client *clientv3.Client
	o      Options

	// seen is the highest revision that an answer has carried.
	seen atomic.Int64
	// recent remembers values, so that a change need not read them first.
	recent recent
	// format is the format of the store as last read.
	format atomic.Pointer[Format]
}

// New makes a store on the etcd of a client. It does not call etcd.
func New(client *clientv3.Client, o Options) (*Store, error) {
	if client == nil {
		return nil, errors.New("etcd store: there is no client")
	}
	if len(o.Schemas.All()) == 0 {
		return nil, errors.New("etcd store: Options.Schemas is empty")
	}
	if o.MaxTxnOps < 0 || o.MaxRequestBytes < 0 || o.RequestTimeout < 0 {
		return nil, errors.New("etcd store: a limit in Options is negative")
	}
	if o.Addresses.Enabled() {
		if err := errors.Join(address.CheckIPv4(o.Addresses.IPv4), address.CheckIPv6(o.Addresses.IPv6)); err != nil {
			return nil, fmt.Errorf("etcd store: Options.Addresses: %w", err)
		}
	}
	if o.RequestTimeout > storage.HistoryGrace/2 {
		return nil, fmt.Errorf("etcd store: Options.RequestTimeout is %v: it may be %v at most", o.RequestTimeout, storage.HistoryGrace/2)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.MaxTxnOps == 0 {
		o.MaxTxnOps = StockMaxTxnOps
	}
	if o.MaxRequestBytes == 0 {
		o.MaxRequestBytes = StockMaxRequestBytes
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = 10 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Store{client: client, o: o}, nil
}

// Fenced returns this store through another client of the same etcd, such as the client
// of an election's leader (package election). That client adds a condition to every
// transaction, so one operation less fits.
func (s *Store) Fenced(client *clientv3.Client) *Store {
	o := s.o
	o.MaxTxnOps--
	out := &Store{client: client, o: o}
	out.format.Store(s.format.Load())
	return out
}

// Schemas returns the kinds served.
func (s *Store) Schemas() schema.Set { return s.o.Schemas }

// Version returns the highest revision of etcd that this Store knows, "0" before its
// first call. Any write to that etcd raises it, also by another client.
func (s *Store) Version() string { return version(s.seen.Load()) }

// noteHeader records the revision in the header of an answer. before was the highest known
// revision at the request.
func (s *Store) noteHeader(before int64, h *etcdserverpb.ResponseHeader) {
	s.recent.checkLife(before, h)
	for revision := h.Revision; ; {
		seen := s.seen.Load()
		if revision <= seen || s.seen.CompareAndSwap(seen, revision) {
			return
		}
	}
}

// get is one read of etcd with a deadline.
func (s *Store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.RequestTimeout)
	defer cancel()
	seen := s.seen.Load()
	response, err := s.client.Get(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	s.noteHeader(seen, response.Header)
	return response, nil
}
