package rest_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

var (
	cuts = flag.Int("cuts", 25, "at how many places of the answers TestInformerLosesItsConnection cuts, for each way of it")
	seed = flag.Uint64("seed", 1, "of the places")
)

// cutting is one run: the connections of an informer are cut during a fixed sequence of
// changes.
type cutting struct {
	listing bool   // the informer lists and then watches, as older ones do
	reset   bool   // the cut is a reset and not an orderly end
	burst   bool   // after the cut all remaining changes are made at once
	history int    // number of revisions that the server keeps
	at      uint64 // cuts after so many bytes of the server's answers, and again after as many
}

func (c cutting) String() string {
	return fmt.Sprintf("cut at %d (listing %v, reset %v, burst %v, history %d)", c.at, c.listing, c.reset, c.burst, c.history)
}

// TestInformerLosesItsConnection cuts the connection of a client-go informer at places
// all over the server's answers: in the list and at its end, in and between events,
// bookmarks, and the objects of one batch. Wherever the cut is, the informer ends with
// the objects of the store, and its handler got a consistent sequence. Unless a list
// came between, the sequence has every change.
func TestInformerLosesItsConnection(t *testing.T) {
	t.Parallel()
	source := rand.New(rand.NewPCG(*seed, 0))
	t.Logf("seed %d", *seed)
	var running sync.WaitGroup
	limit := make(chan struct{}, 40) // runs mostly wait
	var expired, complete, uncut atomic.Int64
	for _, way := range []cutting{
		{listing: true, reset: true}, {listing: true}, {reset: true}, {},
	} {
		// The first run counts the bytes that can be cut.
		whole := inform(t, way)
		stride := max(1, int(whole.bytes)/(*cuts))
		for at := source.IntN(stride); at < int(whole.bytes); at += stride {
			one := way
			one.at, one.burst, one.history = uint64(at), source.IntN(2) == 0, []int{3, 1000}[source.IntN(2)]
			limit <- struct{}{}
			running.Go(func() {
				defer func() { <-limit }()
				run := inform(t, one)
				expired.Add(run.expired)
				if run.complete {
					complete.Add(1)
				}
				if run.cut == 0 {
					uncut.Add(1)
				}
			})
		}
	}
	running.Wait()
	t.Logf("%d new lists, %d runs saw every change, %d were not cut", expired.Load(), complete.Load(), uncut.Load())
	if expired.Load() == 0 || complete.Load() == 0 || uncut.Load() > int64(*cuts) {
		t.Error("the places are not spread over what there is to see")
	}
}

type informerResult struct {
	bytes    uint64
	cut      int
	expired  int64 // number of lists after the first
	complete bool  // the handler had to get every change
}

// inform is one run, without a cut if at is 0.
func inform(t *testing.T, o cutting) informerResult {
	s := resttest.Start(t, o.history, func(r *rest.Options) { r.BookmarkInterval = 5 * time.Millisecond })
	relay := newCutter(t, strings.TrimPrefix(s.URL, "http://"), o)
	p := &participant{t: t, cutting: o, server: s, fold: &fold{held: map[string]string{}, deleted: map[string]int{}}}
	p.apply(put("a", 0), put("b", 0), put("c", 0))
	stop := p.start(relay.address())
	defer stop()
	p.change(relay)
	p.await("the end", func() bool { return p.fold.equal(p.truth()) && p.informed() == p.truth() })
	for _, fault := range p.fold.faults(p.changes, p.complete.Load()) {
		t.Errorf("%v: %s", o, fault)
	}
	bytes, cut := relay.counted()
	return informerResult{bytes: bytes, cut: cut, expired: p.expired.Load(), complete: p.complete.Load()}
}

// participant is the informer of a run, and the changes that it should see.
type participant struct {
	t *testing.T
	cutting
	server   *resttest.Server
	informer cache.SharedIndexInformer
	fold     *fold
	// changes are the versions of each object, "-" for a deletion.
	changes  map[string][]string
	complete atomic.Bool // no list after the first, and no change before it
	expired  atomic.Int64
}

func put(name string, round int) storage.Op {
	return storage.Op{Verb: storage.Put, Config: &config.Config{
		Meta: config.Meta{
			GroupVersionKind: schema.ServiceEntry, Namespace: "shop", Name: name,
			Labels: map[string]string{"round": strconv.Itoa(round)},
		},
		Spec: &networking.ServiceEntry{Hosts: []string{name + ".shop"}},
	}}
}

func remove(name string) storage.Op {
	return storage.Op{Verb: storage.Delete, Key: config.Key{Kind: schema.ServiceEntry, Namespace: "shop", Name: name}}
}

// script has the changes: batches, updates, deletions, and objects that come again under
// their names.
var script = [][]storage.Op{
	{put("a", 1), put("b", 1), put("d", 1)},
	{remove("c")},
	{put("c", 2)},
	{remove("d"), put("e", 3), put("a", 3)},
	{put("b", 4)},
	{remove("b")},
	{put("b", 5), put("f", 5), put("g", 5), put("h", 5)},
	{put("f", 6)},
	{remove("f"), remove("g"), remove("h"), put("c", 7)},
	{remove("c"), put("a", 8)},
	{put("c", 9), remove("e")},
}

func (p *participant) apply(ops ...storage.Op) {
	revision, _, err := p.server.Store.Apply(p.t.Context(), ops)
	if err != nil {
		p.t.Error(err)
	}
	if p.changes == nil {
		p.changes = map[string][]string{}
	}
	for _, op := range ops {
		name, state := op.Target().Name, revision
		if op.Verb == storage.Delete {
			state = "-"
		}
		p.changes[name] = append(p.changes[name], state)
	}
}

// change makes the changes: each when the informer has seen the one before; in a burst
// all at once after the cut.
func (p *participant) change(relay *cutter) {
	begun := func() bool {
		_, cut := relay.counted()
		return p.burst && cut > 0
	}
	p.await("the first list", func() bool { return p.informer.HasSynced() || begun() })
	p.complete.Store(p.informer.HasSynced())
	for _, ops := range script {
		p.await("a change", func() bool { return begun() || p.fold.equal(p.truth()) })
		p.apply(ops...)
	}
}

// await waits for a condition; if it never holds the run has failed.
func (p *participant) await(what string, holds func() bool) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-limit:
			p.t.Errorf("%v: not within 30 s: %s; it was told %s, has %s, and the truth is %s", p.cutting, what, p.fold, p.informed(), p.truth())
			return
		}
	}
}

// truth returns the objects of the store.
func (p *participant) truth() string {
	var lines []string
	for name, states := range p.changes {
		if last := states[len(states)-1]; last != "-" {
			lines = append(lines, name+"@"+last)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

func (p *participant) informed() string {
	var lines []string
	for _, object := range p.informer.GetStore().List() {
		o := object.(*unstructured.Unstructured)
		lines = append(lines, o.GetName()+"@"+o.GetResourceVersion())
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}

// start runs an informer that calls the server at an address.
func (p *participant) start(address string) (stop func()) {
	transport := &http.Transport{}
	client, err := dynamic.NewForConfig(&clientrest.Config{Host: "http://" + address, Transport: transport, QPS: -1})
	if err != nil {
		p.t.Fatal(err)
	}
	entries := client.Resource(gvr).Namespace("shop")
	p.informer = cache.NewSharedIndexInformer(listWatch{
		ListWatch: &cache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
				p.lists(true)
				return entries.List(ctx, o)
			},
			WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
				p.lists(o.SendInitialEvents != nil && *o.SendInitialEvents)
				return entries.Watch(ctx, o)
			},
		},
		listing: p.listing,
	}, &unstructured.Unstructured{}, 0, cache.Indexers{})
	if err := p.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		p.t.Error(err)
	}
	if _, err := p.informer.AddEventHandler(p.fold); err != nil {
		p.t.Error(err)
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.informer.RunWithContext(ctx) })
	return func() {
		cancel()
		running.Wait()
		transport.CloseIdleConnections()
	}
}

// lists counts that the informer lists, except the first time.
func (p *participant) lists(does bool) {
	if does && p.informer.HasSynced() {
		p.complete.Store(false)
		p.expired.Add(1)
	}
}

// listWatch is how an informer reads.
type listWatch struct {
	*cache.ListWatch
	listing bool
}

// IsWatchListSemanticsUnSupported makes an informer list and then watch.
func (l listWatch) IsWatchListSemanticsUnSupported() bool { return l.listing }
