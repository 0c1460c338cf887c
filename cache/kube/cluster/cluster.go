package cluster

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/portolan-mesh/portolan/cache/kube/selection"
)

// The defaults of Options.
const (
	DefaultTimeout  = time.Minute
	defaultRetryMin = 500 * time.Millisecond
	defaultRetryMax = 15 * time.Second
)

// Options configure a Cluster. One of File, Content and Unusable is required.
type Options struct {
	// Name is the name of the cluster in the mesh, which proxies report as their cluster;
	// empty is the name of the context.
	Name string
	// File is the path of a kubeconfig. A changed file, and changed files that it names,
	// take effect at the next request.
	File string
	// Content is a kubeconfig from a Secret instead. It may name no files and run no
	// program, and must verify the server.
	Content []byte
	// Unusable is why there is no kubeconfig that can be used. Then the cluster counts as away, for this
	// reason, which is an ErrUnusable.
	Unusable error
	// Context is the context of the kubeconfig; empty is its current one.
	Context string
	// Timeout bounds the wait for an answer, and for the next part of a first list; 0 is
	// DefaultTimeout.
	Timeout time.Duration
	// RetryMin and RetryMax are the first and the longest wait between attempts, without
	// their jitter; 0 is 500 ms and 15 s.
	RetryMin, RetryMax time.Duration
	// WatchFor is how long a watch lasts before the next one, in whole seconds; 0 is 5 to
	// 10 minutes. A right that was taken away shows at the next watch.
	WatchFor time.Duration
	// Selectors say which namespaces count, for those who ask by FollowSelection; nil is all.
	Selectors *selection.Selectors
	// RecallNamespaces returns the Namespaces that the cluster of a name last had, for a start
	// while it does not tell them. It is called again while it fails; nil is for none.
	RecallNamespaces func(ctx context.Context, cluster string) (map[string]*selection.Namespace, error)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
	// Log gets messages; it may be nil.
	Log *slog.Logger
}

// Cluster is a connection to a cluster. It is safe for concurrent use, and has no
// goroutine of its own.
type Cluster struct {
	link *link
	by   User
	mu   sync.Mutex // guards the fields below
	// states are those of the resources being followed, in the order of their Follow.
	states []*state
	// selects says that the user goes by the Selection. Then it has the state of the Namespaces
	// beside its own, and no problems of namespaces that do not count.
	selects bool
}

// link is what all users of a connection share.
type link struct {
	o      Options
	name   string
	client atomic.Pointer[client]
	// namespaces are those of the cluster, for all users.
	namespaces *namespaces

	mu sync.Mutex // guards the fields below
	// fault is why the kubeconfig that should be used now cannot be; nil if it is used.
	fault error
	// lost has the reasons of all resources that are not followed, with their number.
	lost map[string]int
	// found is closed when a resource is followed again.
	found chan struct{}
}

// New returns the connection of a kubeconfig. It sends nothing yet: the cluster may be
// away. It fails if the kubeconfig cannot be read, or is not safe to use.
func New(o Options) (*Cluster, error) {
	if o.Unusable == nil && (o.File == "") == (len(o.Content) == 0) {
		return nil, errors.New("a cluster needs a kubeconfig: either a file or its content")
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.RetryMin, o.RetryMax = cmp.Or(o.RetryMin, defaultRetryMin), cmp.Or(o.RetryMax, defaultRetryMax)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	l := &link{o: o, lost: map[string]int{}, found: make(chan struct{})}
	first, err := firstClient(&o)
	if err != nil {
		return nil, err
	}
	l.name = cmp.Or(o.Name, first.context)
	l.client.Store(first)
	l.namespaces = newNamespaces(l)
	return &Cluster{link: l}, nil
}

func firstClient(o *Options) (*client, error) {
	if o.Unusable != nil {
		return unusableClient(o.Unusable)
	}
	source, err := readKubeconfig(o)
	if err != nil {
		return nil, err
	}
	return newClient(o, source)
}

// Share returns another Cluster over the same connection, with resources and problems of
// its own: each user of a connection has one.
func (c *Cluster) Share(by User) *Cluster { return &Cluster{link: c.link, by: by} }

// SetFault notes why a kubeconfig that should replace the Content cannot be used, nil if none should.
// Degraded says it then, as it does of a changed File.
func (c *Cluster) SetFault(err error) {
	c.link.mu.Lock()
	defer c.link.mu.Unlock()
	c.link.fault = err
}

// Name returns the name of the cluster in the mesh.
func (c *Cluster) Name() string { return c.link.name }

// Server returns the URL of the API server; empty without a kubeconfig that can be used.
func (c *Cluster) Server() string { return c.link.client.Load().server }

// Dynamic returns a client for single requests, such as writes of statuses. The caller
// bounds them by a context, and asks for the client again for the next one.
func (c *Cluster) Dynamic() dynamic.Interface { return c.link.current().dynamic }

// REST returns a client for requests by path, as Dynamic does.
func (c *Cluster) REST() rest.Interface { return c.link.current().plain }

// current returns the client of the present kubeconfig; the last good one if that cannot
// be used.
func (l *link) current() *client {
	was := l.client.Load()
	if l.o.File == "" {
		return was
	}
	source, err := readKubeconfig(&l.o)
	next := was
	if err == nil && source.hash != was.hash {
		next, err = newClient(&l.o, source)
	}
	l.mu.Lock()
	changed := (err == nil) != (l.fault == nil)
	l.fault = err
	l.mu.Unlock()
	switch {
	case err != nil && changed:
		l.o.Log.Warn("a kubeconfig cannot be used: the last good one is", "cluster", l.name, "err", err)
	case err == nil && next != was && l.client.CompareAndSwap(was, next):
		was.http.CloseIdleConnections()
		l.o.Log.Info("a kubeconfig has changed", "cluster", l.name, "server", next.server)
	}
	return l.client.Load()
}
