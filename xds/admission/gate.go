package admission

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// Options say whom a Gate lets in, and what clients may cost.
type Options struct {
	// Peer returns who the client of a stream has proved to be. Its error is a gRPC status
	// that says why the client is refused; the Peer then has the refused identity, if there
	// is one. With nil no client has proved anything.
	Peer func(context.Context) (Peer, error)
	// OnRefusal is called for each client that was refused because of who it is or says
	// that it is, unless Peer returned Unavailable. It must not block; nil is not called.
	OnRefusal func(Refusal)
	// MayExport returns why an identity may not take the objects of the mesh, nil if it
	// may. Without it no identity may. It is not called for a client that has proved
	// nothing, which may take them.
	MayExport func(context.Context, identity.Identity) error
	// MaxIdentityStreams is how many streams the clients of one identity may have; 0 stands
	// for DefaultMaxIdentityStreams. The subscriptions of these may take a quarter of
	// StreamsMemory.
	MaxIdentityStreams int

	// MaxFirstSyncs is how many proxies have their first sync at one time; 0 stands for
	// 100.
	MaxFirstSyncs int
	// MaxWaiting is how many more proxies may wait for their first sync, first come first
	// served; 0 stands for a hundred times MaxFirstSyncs, and a negative number for none.
	// Further streams are refused.
	MaxWaiting int
	// SyncSilence is how long a client that owes no answer may send nothing during its
	// first sync, not even a part of a message; 0 stands for a second. SyncLimit is how
	// long the server waits for the client in all; 0 stands for three seconds. An Envoy
	// needs less of either.
	SyncSilence, SyncLimit time.Duration

	// StreamMemory bounds the bytes that the server keeps for the subscriptions of one
	// stream, and StreamsMemory those of all streams; 0 stands for 64 MiB and 1 GiB.
	StreamMemory, StreamsMemory int64

	// HangUp closes the connection to a client, so that the client may choose another
	// server; nil ends only its stream. secure.Conns implements it.
	HangUp func(remote net.Addr)
}

// DefaultMaxIdentityStreams is the default of Options.MaxIdentityStreams.
const DefaultMaxIdentityStreams = 2000

// Gate lets streams in. It is safe for concurrent use.
type Gate struct {
	options Options
	mesh    func() *meshconfig.Config
	logger  *slog.Logger

	slots    *slots
	budget   *budget
	refusals refusals
	refused  prometheus.Counter

	mu     sync.Mutex           // guards the fields below
	proved map[*Stream]struct{} // the streams whose proof may be taken back
	checks int                  // how often CheckPeers was called
}

// New makes the gate of a mesh, and registers its metrics; a nil Registerer registers none. mesh
// returns the mesh configuration in effect.
func New(o Options, mesh func() *meshconfig.Config, logger *slog.Logger, r prometheus.Registerer) *Gate {
	o.MaxIdentityStreams = cmp.Or(o.MaxIdentityStreams, DefaultMaxIdentityStreams)
	o.MaxFirstSyncs = cmp.Or(o.MaxFirstSyncs, 100)
	o.MaxWaiting = cmp.Or(o.MaxWaiting, 100*o.MaxFirstSyncs)
	o.SyncSilence = cmp.Or(o.SyncSilence, time.Second)
	o.SyncLimit = cmp.Or(o.SyncLimit, 3*time.Second)
	o.StreamMemory = cmp.Or(o.StreamMemory, 64<<20)
	o.StreamsMemory = cmp.Or(o.StreamsMemory, 1<<30)
	metrics := promauto.With(r)
	g := &Gate{
		options: o, mesh: mesh, logger: logger, slots: newSlots(o), budget: newBudget(o), proved: map[*Stream]struct{}{},
		refused: metrics.NewCounter(prometheus.CounterOpts{Name: "portolan_xds_refused_identities_total", Help: "Streams that were refused for who their client is, or says that it is."}),
	}
	gauge := func(name, help string, value func() int64) {
		metrics.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(value()) })
	}
	counter := func(name, help string, value *atomic.Int64) {
		metrics.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(value.Load()) })
	}
	gauge("portolan_first_syncs", "Proxies that are being brought up from nothing.", func() int64 { return int64(len(g.slots.taken)) })
	gauge("portolan_waiting_proxies", "Proxies that wait for their turn to be brought up.", g.slots.waiting.Load)
	counter("portolan_refused_proxies_total", "Streams that were refused, as too many proxies waited.", &g.slots.refused)
	counter("portolan_lost_turns_total", "Proxies that lost their turn to be brought up, as they made no progress.", &g.slots.lost)
	gauge("portolan_streams_memory_bytes", "Memory for the subscriptions of all streams, which --streams-memory bounds.", g.budget.inUse)
	counter("portolan_greedy_streams_total", "Streams that were ended, because their subscriptions took too much memory.", &g.budget.ended)
	return g
}

// StreamMemory is how many bytes the server keeps for the subscriptions of one stream at most.
func (g *Gate) StreamMemory() int64 { return g.options.StreamMemory }

// CheckPeers ends the streams whose clients have lost the identity or token that they
// connected with, for example by revocation. Call it after such a change. It checks streams
// that begin meanwhile, too.
func (g *Gate) CheckPeers(ctx context.Context) {
	g.mu.Lock()
	g.checks++
	proved := make([]*Stream, 0, len(g.proved))
	for s := range g.proved {
		proved = append(proved, s)
	}
	g.mu.Unlock()
	for _, s := range proved {
		s.check(ctx)
	}
}
