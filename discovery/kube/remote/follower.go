package remote

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/errlist"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// Options configure a Follower. All but Flags and Logger are required.
type Options struct {
	// Configs returns the configuration that all handlers have seen.
	Configs func() *cache.Snapshot
	// Keys returns the keys that open Secrets, another pointer whenever they change.
	Keys func() *seal.Ring
	// Root is the root namespace of the mesh.
	Root string
	// Flags are the names of the clusters that flags name.
	Flags []string
	// Connect makes the connection to a cluster. Of its options the name is set, and the content or why
	// there is none that can be used.
	Connect func(cluster.Options) (*cluster.Cluster, error)
	// Clusters makes the registries, and Registries runs them.
	Clusters   *kube.Clusters
	Registries Registries
	// Logger may be nil.
	Logger *slog.Logger
}

// Registries are registries that come and go. An *aggregate.Registry has them.
type Registries interface {
	Add(discovery.Instance) error
	Remove(discovery.ShardKey) error
}

// Follower has the registries of the clusters that Secrets name.
type Follower struct {
	o    Options
	wake chan struct{} // holds a token when wanted may differ

	// The fields below belong to the worker.

	configs *cache.Snapshot // that Follow has seen
	keys    *seal.Ring
	secrets pmap.Map[*config.Config] // with the label in the root namespace, by path

	// running belongs to Run: the registries by the names of their clusters.
	running map[string]running

	mu      sync.Mutex // guards the fields below
	wanted  []entry    // in the order of their names
	settled bool       // Follow has seen a configuration
	synced  bool
	state   []followed
	last    pmap.Map[Fault]
}

// entry is a cluster as a Secret names it.
type entry struct {
	name   string
	secret config.Key
	// content is Sealed.Content of the Secret, and kubeconfig the data.
	content    string
	kubeconfig []byte
	err        error // why the Secret cannot be opened
}

// running is a registry with the kubeconfig that it follows, or at least should. Without one that can
// be used it has none, and unusable says why: it then serves what was last known of the cluster.
type running struct {
	*kube.Registry
	kubeconfig []byte
	secret     config.Key
	unusable   string
}

// followed is what became of an entry: its registry, and why that does not follow this kubeconfig.
type followed struct {
	entry
	by running
}

func (of followed) fault() Fault {
	err := of.err
	if err == nil {
		err = of.by.Away()
	}
	return Fault{Content: of.content, Away: of.err == nil, Reason: errlist.Cause(err)}
}

// New returns a Follower that knows no cluster.
func New(o Options) *Follower {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Follower{o: o, wake: make(chan struct{}, 1), running: map[string]running{}}
}

// HasSynced says whether the registries of the clusters in the first configuration were made.
func (f *Follower) HasSynced() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.synced
}

// Follow takes over the configuration and the keys. It is a hook of the worker.
func (f *Follower) Follow() {
	configs, keys := f.o.Configs(), f.o.Keys()
	if configs == nil {
		return
	}
	prefix, changed := config.NamespacePath(schema.Secret, f.o.Root), f.configs == nil || f.keys != keys
	for c := range pmap.Diff(f.configs.Configs(), configs.Configs()) {
		switch {
		case !strings.HasPrefix(c.Key, prefix):
			continue
		case c.HasNew && Labelled(c.New):
			f.secrets = f.secrets.Set(c.Key, c.New)
		case c.HasOld && Labelled(c.Old):
			f.secrets = f.secrets.Delete(c.Key)
		default:
			continue
		}
		changed = true
	}
	if f.configs, f.keys = configs, keys; !changed {
		return
	}
	wanted := f.entries()
	f.mu.Lock()
	f.wanted, f.settled = wanted, true
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// entries opens the Secrets, and returns the clusters that count.
func (f *Follower) entries() (out []entry) {
	taken := map[string]bool{}
	for _, name := range f.o.Flags {
		taken[name] = true
	}
	for _, object := range slices.SortedFunc(f.secrets.Values(), config.Compare) {
		data, err := sealing.Open(*f.keys, object)
		for _, name := range Names(object) {
			if !taken[name] {
				taken[name] = true
				out = append(out, entry{name, object.Key(), object.Spec.(*secret.Spec).Sealed.Content, data[name], err})
			}
		}
	}
	slices.SortFunc(out, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	return out
}

// Run makes the registries what the Secrets ask for, until ctx ends. It does not end the registries:
// whoever runs Registries does.
func (f *Follower) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
			f.reconcile()
		}
	}
}

func (f *Follower) reconcile() {
	f.mu.Lock()
	wanted, settled, known := f.wanted, f.settled, map[string]string{} // the faults that were logged
	for _, of := range f.state {
		known[of.name] = errlist.Cause(of.err)
	}
	f.mu.Unlock()
	stays := map[string]bool{}
	for _, e := range wanted {
		stays[e.name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(f.running)) {
		if stays[name] {
			continue
		}
		f.o.Logger.Info("a cluster is followed no more: no Secret names it", "cluster", name, "secret", f.running[name].secret)
		if err := f.o.Registries.Remove(discovery.ShardKey{Provider: discovery.Kubernetes, Cluster: name}); err != nil {
			f.o.Logger.Error("a cluster could not be removed", "cluster", name, "err", err)
		}
		delete(f.running, name)
	}
	state := make([]followed, 0, len(wanted))
	for _, e := range wanted {
		fault := e.err
		if e.err == nil {
			if e.err = f.connect(e); e.err != nil {
				fault = fmt.Errorf("%s: %w", e.secret, e.err)
			}
		}
		if e.err != nil {
			f.standIn(&e)
		}
		if is, there := f.running[e.name]; there && is.unusable == "" {
			is.SetFault(fault)
		}
		if e.err != nil && errlist.Cause(e.err) != known[e.name] {
			f.o.Logger.Warn("a cluster cannot be followed as its Secret says", "cluster", e.name, "secret", e.secret, "err", e.err)
		}
		state = append(state, followed{e, f.running[e.name]})
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state, f.synced = state, settled
}

// connect has the registry of a cluster follow it by the kubeconfig of a Secret.
func (f *Follower) connect(e entry) error {
	is, there := f.running[e.name]
	if there && is.unusable == "" && is.secret == e.secret && bytes.Equal(is.kubeconfig, e.kubeconfig) {
		return nil
	}
	connection, err := f.o.Connect(cluster.Options{Name: e.name, Content: e.kubeconfig})
	if err != nil {
		return err
	}
	f.o.Logger.Info("a cluster is followed as a Secret says", "cluster", e.name, "secret", e.secret, "server", connection.Server())
	return f.run(e.name, connection, running{kubeconfig: e.kubeconfig, secret: e.secret})
}

// standIn makes a registry for a cluster that is not followed, as it has no kubeconfig that can be used:
// the registry serves what was last known of the cluster.
func (f *Follower) standIn(e *entry) {
	is, there := f.running[e.name]
	why := errlist.Cause(e.err)
	if there && (is.unusable == "" || is.unusable == why) {
		return
	}
	connection, err := f.o.Connect(cluster.Options{Name: e.name, Unusable: e.err})
	if err == nil {
		err = f.run(e.name, connection, running{secret: e.secret, unusable: why})
	}
	if err != nil {
		e.err = fmt.Errorf("%w; and what was last known of the cluster is not served: %w", e.err, err)
	}
}

// run has the registry of a cluster follow a connection. It makes and runs the registry if there is none.
func (f *Follower) run(name string, connection *cluster.Cluster, now running) error {
	if is, there := f.running[name]; there {
		is.Reconnect(connection, now.secret.String())
		now.Registry = is.Registry
	} else {
		now.Registry = f.o.Clusters.Remote(connection, now.secret.String())
		if err := f.o.Registries.Add(now.Registry); err != nil {
			return err
		}
	}
	f.running[name] = now
	return nil
}

// Fault is why a cluster is not followed as its Secret says.
type Fault struct {
	// Content is secret.Sealed.Content of the Secret with the fault.
	Content string
	// Away says that the cluster cannot be followed now. Otherwise its kubeconfig cannot be used.
	Away   bool
	Reason string
}

// FaultKey is the key of a cluster among Faults: the path of its Secret, and its name.
func FaultKey(path, name string) string { return path + "/" + name }

// Faults returns what is wrong now. Equal faults are one map.
func (f *Follower) Faults() pmap.Map[Fault] {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := pmap.Map[Fault]{}
	for _, of := range f.state {
		if fault := of.fault(); fault.Reason != "" {
			next = next.Set(FaultKey(of.secret.Path(), of.name), fault)
		}
	}
	if !pmap.Equal(f.last, next) {
		f.last = next
	}
	return f.last
}
