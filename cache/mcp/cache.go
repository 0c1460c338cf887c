package mcp

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// The defaults of Options.
const (
	DefaultMaxMessage = 256 << 20
	defaultRetryMin   = 100 * time.Millisecond
	defaultRetryMax   = 10 * time.Second
	defaultNodeName   = "portolan"
)

// longestPause is the longest pause between the first answers for two kinds of a peer that is being
// read. Some peers never answer for a kind.
const longestPause = 5 * time.Second

// Variant is a variant of the protocol.
type Variant string

// The variants. AnyVariant is delta, or state of the world with a peer without delta.
const (
	AnyVariant      Variant = ""
	Delta           Variant = "delta"
	StateOfTheWorld Variant = "sotw"
)

// Options configure a Cache. Address and Worker are required.
type Options struct {
	// Address is HOST:PORT of the peer.
	Address string
	// TLS returns the configuration of each connection. nil is plaintext, which is
	// allowed only for a peer on this machine.
	TLS func() (*tls.Config, error)
	// Token returns the bearer token of each stream; nil for none.
	Token func() (string, error)
	// Variant is the variant of the protocol.
	Variant Variant
	// Worker runs the handlers.
	Worker *cache.Worker
	// Schemas are the kinds of the mesh. The cache has those of Istio's API among them.
	Schemas schema.Set
	// Domain is the domain of all objects (config.Meta).
	Domain string
	// NodeName tells this client from the peer's other clients; empty is "portolan".
	NodeName string
	// MaxMessage bounds the bytes of one response; 0 is DefaultMaxMessage.
	MaxMessage int
	// RetryMin and RetryMax are the first and the longest wait before another call to a
	// peer that is away; 0 is 100 ms and 10 s.
	RetryMin, RetryMax time.Duration
	// History and HistoryMemory are passed to cache.FeedOptions.
	History       int
	HistoryMemory int64
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Log gets messages; it may be nil.
	Log *slog.Logger
	// Registerer registers the metrics, with the Address as their label peer; nil for
	// none.
	Registerer prometheus.Registerer
}

// Validate says what is wrong with the options of a peer.
func (o *Options) Validate() error {
	host, port, err := net.SplitHostPort(o.Address)
	switch {
	case err != nil || host == "" || port == "":
		return fmt.Errorf("%q is no HOST:PORT", o.Address)
	case o.TLS == nil && !Local(host):
		return fmt.Errorf("%s is on another machine, and would be followed in plaintext: use TLS", o.Address)
	case !slices.Contains([]Variant{AnyVariant, Delta, StateOfTheWorld}, o.Variant):
		return fmt.Errorf("the variant %q is none: use %s or %s", o.Variant, Delta, StateOfTheWorld)
	}
	return nil
}

// Local says whether a host is this machine.
func Local(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// Cache is a read-only cache.ConfigStoreCache of a peer's objects.
type Cache struct {
	*cache.Feed
	o     Options
	kinds []*schema.Schema
	// maxRequest bounds the versions of one kind in a request.
	maxRequest int

	// Only the goroutine of Run uses these fields.
	configs  pmap.Map[*config.Config]
	revision int64
	types    map[string]*typeState // by type URL
	logged   string                // the last logged error

	mu         sync.RWMutex // guards the fields below, and the faults of types
	link       error        // why the peer is not followed; nil while it is
	answered   time.Time    // when the peer last answered, while it has not for all kinds; else zero
	since      time.Time    // of link
	lastChange time.Time
	refused    int // number of refused responses
}

var _ cache.ConfigStoreCache = (*Cache)(nil)

// errNotYet is the state of a cache that does not run yet.
var errNotYet = errors.New("it was not called yet")

// New returns a cache that waits for Run.
func New(o Options) (*Cache, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("source of configuration: %w", err)
	}
	o.MaxMessage = cmp.Or(o.MaxMessage, DefaultMaxMessage)
	o.RetryMin, o.RetryMax = cmp.Or(o.RetryMin, defaultRetryMin), cmp.Or(o.RetryMax, defaultRetryMax)
	o.NodeName = cmp.Or(o.NodeName, defaultNodeName)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	kinds := slices.DeleteFunc(slices.Clone(o.Schemas.All()), func(kind *schema.Schema) bool { return !requested(kind) })
	c := &Cache{
		Feed: cache.NewFeed(cache.FeedOptions{
			Worker: o.Worker, Schemas: schema.NewSet(kinds...), History: o.History, HistoryMemory: o.HistoryMemory,
		}),
		o: o, kinds: kinds, maxRequest: maxRequest, types: map[string]*typeState{}, link: errNotYet, since: o.Now(),
	}
	for _, kind := range kinds {
		c.types[kind.GroupVersionKind.String()] = newTypeState(kind)
	}
	if o.Registerer != nil {
		prometheus.WrapRegistererWith(prometheus.Labels{"peer": o.Address}, o.Registerer).MustRegister(c.collectors()...)
	}
	return c, nil
}

// requested says whether the cache requests a kind from peers: the kinds of Istio's API,
// but no secrets.
func requested(kind *schema.Schema) bool {
	return !kind.Internal && strings.HasSuffix(kind.Group, ".istio.io")
}

// Run follows the peer until ctx ends, and then returns nil. It publishes the first
// snapshot once the peer has answered for each kind.
func (c *Cache) Run(ctx context.Context) error {
	if err := c.Seal(); err != nil {
		return err
	}
	// A peer that has not answered yet may be waiting for this server, so the waits are
	// short.
	wait := retry.New(c.o.RetryMin, min(c.o.RetryMax, max(c.o.RetryMin, time.Second)))
	for ctx.Err() == nil {
		followed, err := c.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		c.setLost(err)
		if followed {
			wait = retry.New(c.o.RetryMin, c.o.RetryMax)
		}
		_ = wait.Wait(ctx)
	}
	return nil
}

// setLost records why the peer is not followed.
func (c *Cache) setLost(err error) {
	c.mu.Lock()
	if c.link == nil {
		c.since = c.o.Now()
	}
	c.link, c.answered = err, time.Time{}
	c.mu.Unlock()
	if c.logged != err.Error() {
		c.logged = err.Error()
		kept := "its last objects are served"
		if c.Snapshot() == nil {
			kept = "nothing is known of it yet"
		}
		c.o.Log.Warn("a source of configuration cannot be followed: "+kept, "peer", c.o.Address, "err", err)
	}
}

func (c *Cache) setFollowed(variant Variant) {
	c.mu.Lock()
	c.link, c.answered = nil, time.Time{}
	c.mu.Unlock()
	c.logged = ""
	c.o.Log.Info("a source of configuration is followed", "peer", c.o.Address, "variant", string(variant), "objects", c.configs.Len())
}

// setWaiting records that the peer was called, and has not answered for all kinds.
func (c *Cache) setWaiting(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.link, c.answered = err, c.o.Now()
}

// Reading says whether the first objects of the peer are on the way: it answers for one kind after
// the other.
func (c *Cache) Reading() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return !c.answered.IsZero() && c.o.Now().Sub(c.answered) < longestPause && c.Snapshot() == nil
}

// apply applies responses as one snapshot.
func (c *Cache) apply(answers []*answer) {
	configs := c.configs
	var changes problemChanges
	c.mu.Lock()
	for _, a := range answers {
		configs = a.of.apply(configs, a, c.o.Now(), &changes)
	}
	differs := configs != c.configs
	if differs {
		c.lastChange = c.o.Now()
	}
	c.mu.Unlock()
	cache.LogProblems(c.o.Log.With("peer", c.o.Address), changes.added, changes.solved)
	if differs || c.Snapshot() == nil {
		c.revision++
		c.configs = configs
		c.Publish(c.Snapshot().Next(c.revision, cache.Content{Configs: configs}))
	}
}
