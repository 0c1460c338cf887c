package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/portolan-mesh/portolan/cache/kube/selection"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// namespacesResource is the resource whose labels selectors match.
var namespacesResource = corev1.SchemeGroupVersion.WithResource("namespaces")

// namespaces are those of a cluster, with the Selection that follows from their labels. All
// users of a connection share them. Namespaces are listed and watched only while there are
// selectors.
type namespaces struct {
	selectors *selection.Selectors // nil: all namespaces count
	of        *Cluster             // follows them
	turn      chan struct{}        // held by the user whose goroutine follows them for all

	mu   sync.Mutex // guards the fields below
	list selection.List
	// labels are the last known ones. have says that some are known, and listed that the
	// cluster has told them since there are selectors.
	labels       pmap.Map[*selection.Namespace]
	have, listed bool
	denied       bool // the account has no right to list them
	recalled     bool // there is nothing more to wait for from recall
	selection    selection.Selection
	known        bool          // the Selection is
	next         chan struct{} // closed when the Selection changes
}

func newNamespaces(l *link) *namespaces {
	return &namespaces{
		selectors: l.o.Selectors, of: &Cluster{link: l}, turn: make(chan struct{}, 1),
		recalled: l.o.RecallNamespaces == nil, known: l.o.Selectors == nil, next: make(chan struct{}),
	}
}

// FollowSelection tells handle the Selection of the cluster and each change of it, until ctx ends.
// Then it returns nil, and handle runs no more. It waits with the first until the selectors and the
// labels of the Namespaces are known.
//
// Labels that are not listed are those of Options.RecallNamespaces. If the account has no right to
// Namespaces, the last Selection stays; if there was none, all namespaces count. c.Degraded names
// the right.
func (c *Cluster) FollowSelection(ctx context.Context, handle func(selection.Selection)) error {
	n := c.link.namespaces
	c.mu.Lock()
	c.selects = true
	c.mu.Unlock()
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() {
		select {
		case n.turn <- struct{}{}:
			n.run(ctx)
			<-n.turn
		case <-ctx.Done():
		}
	})
	var told *selection.Selection
	for {
		now, known, next := n.now()
		if known && (told == nil || *told != now) {
			handle(now)
			told = &now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-next:
		}
	}
}

// Namespaces returns the Namespaces of the cluster, and since when they are not followed, which is zero
// while they are. It returns false unless the cluster has told them since there are selectors.
func (c *Cluster) Namespaces() (all pmap.Map[*selection.Namespace], lost time.Time, told bool) {
	n := c.link.namespaces
	lost = n.of.LostSince()
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.labels, lost, n.listed
}

func (n *namespaces) now() (now selection.Selection, known bool, next <-chan struct{}) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.selection, n.known, n.next
}

// counts says whether a namespace counts, as far as known.
func (n *namespaces) counts(namespace string) bool {
	now, _, _ := n.now()
	return now.Has(namespace)
}

// run follows the selectors, and the Namespaces while there are some, until ctx ends.
func (n *namespaces) run(ctx context.Context) {
	if n.selectors == nil {
		<-ctx.Done()
		return
	}
	stop := func() {}
	defer func() { stop() }()
	following := false
	for {
		list, known, next := n.selectors.Now()
		if known {
			if list.Empty() && following {
				stop()
				stop, following = func() {}, false
			}
			n.setList(list)
			if !list.Empty() && !following {
				stop, following = n.follow(ctx), true
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
	}
}

// follow follows the Namespaces until stop is called, which waits.
func (n *namespaces) follow(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	begun := false
	running.Go(func() {
		_ = Follow(ctx, n.of, Following[*selection.Namespace]{ // it fails only by a wrong selector
			Resource: namespacesResource, Kind: "Namespace",
			Convert: func(o Object) (*selection.Namespace, error) {
				return &selection.Namespace{Labels: o.GetLabels()}, nil
			},
			Handle: func(b Batch[*selection.Namespace]) {
				n.take(b, !begun)
				begun = true
			},
			State: n.setState,
		})
	})
	running.Go(func() { n.remember(ctx) })
	return func() {
		cancel()
		running.Wait()
		n.mu.Lock()
		defer n.mu.Unlock()
		n.listed = false
	}
}

// remember takes the labels that were last known, unless the cluster tells them first.
func (n *namespaces) remember(ctx context.Context) {
	for {
		n.mu.Lock()
		done := n.recalled || n.known
		n.mu.Unlock()
		if done {
			return
		}
		last, err := n.of.link.o.RecallNamespaces(ctx, n.of.Name())
		if err == nil {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.recalled = true
			if len(last) > 0 && !n.have {
				for name, one := range last {
					n.labels = n.labels.Set(name, one)
				}
				n.have = true
			}
			n.choose()
			return
		}
		if retry.Sleep(ctx, n.of.link.o.RetryMin) != nil {
			return
		}
	}
}

// setList takes the present selectors.
func (n *namespaces) setList(list selection.List) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.list = list; list.Empty() {
		n.labels, n.have, n.listed, n.denied = pmap.Map[*selection.Namespace]{}, false, false, false
	}
	n.choose()
}

// take takes Namespaces of the cluster; begun says that they are all.
func (n *namespaces) take(b Batch[*selection.Namespace], begun bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if begun {
		n.labels = pmap.Map[*selection.Namespace]{}
	}
	chosen := n.selection
	for _, c := range b.Changes {
		if c.HasNew {
			n.labels = n.labels.Set(c.Name.Name, c.New)
		} else {
			n.labels = n.labels.Delete(c.Name.Name)
		}
		chosen = chosen.With(c.Name.Name, c.HasNew && n.list.Matches(c.New.Labels))
	}
	n.denied = false
	if begun {
		n.have, n.listed = true, true
		n.choose()
		return
	}
	n.set(chosen)
}

// setState takes why the Namespaces are not followed.
func (n *namespaces) setState(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.denied = errors.Is(err, ErrDenied)
	n.choose()
}

// choose makes the Selection that follows from all that is known. The caller holds mu.
func (n *namespaces) choose() {
	switch {
	case n.list.Empty(), n.have:
		n.set(selection.Of(n.list, n.labels))
	case n.denied && n.recalled && !n.known:
		n.set(selection.Selection{})
	}
}

// set makes a Selection the present one. The caller holds mu.
func (n *namespaces) set(now selection.Selection) {
	if n.known && n.selection.Equal(now) {
		return
	}
	n.selection, n.known = now, true
	close(n.next)
	n.next = make(chan struct{})
}
