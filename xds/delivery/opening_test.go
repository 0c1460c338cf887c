package delivery_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery"
	"github.com/portolan-mesh/portolan/xds/delivery/nameset"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/delivery/protocoltest"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// opening has clients in their first sync, in a mesh of n clusters and as many listeners
// that send traffic to them. Each client also has a cluster of its own.
type opening struct {
	tb         testing.TB
	types      []delivery.Type
	shared     sets
	names      *nameset.Table
	asked      []string
	sequencers []*delivery.Sequencer
	limits     delivery.Limits
	now        time.Time
	private    int
}

func newOpening(tb testing.TB, n int) *opening {
	o := &opening{tb: tb, types: types(), names: nameset.NewTable(), limits: limits, now: time.Unix(1000, 0)}
	for i := range o.types {
		o.types[i].Names = o.names
	}
	var lines []string
	for i := range n {
		name := fmt.Sprintf("outbound|80||service-%05d", i)
		o.asked = append(o.asked, name)
		lines = append(lines, fmt.Sprintf("CDS %[1]s: >%[1]s", name), fmt.Sprintf("EDS %s: 1", name), fmt.Sprintf("LDS %[1]s: @%[1]s", name))
	}
	o.shared = world(tb, lines...)
	return o
}

// connect makes a new client request clusters and listeners.
func (o *opening) connect() *delivery.Sequencer {
	o.private++
	own := made(o.tb, cds, fmt.Sprintf("inbound|%d", o.private), "")
	f := delivery.New(o.types, protocol.Delta, o.limits)
	f.SetDesired(func(typeURL string) resource.Set {
		if typeURL == cds {
			return o.shared[cds].Set(own.Name, own)
		}
		return o.shared[typeURL]
	}, 1)
	f.Request(cds, protocol.Request{}, o.now)
	f.Request(lds, protocol.Request{}, o.now)
	o.sequencers = append(o.sequencers, f)
	return f
}

// next returns the nonce of the only response that goes now, which must be of a type.
func (o *opening) next(f *delivery.Sequencer, typeURL string) string {
	o.tb.Helper()
	var nonce string
	for sent, r := range f.Responses(o.now) {
		if sent != typeURL || nonce != "" {
			o.tb.Fatalf("%s is sent", sent)
		}
		nonce = r.Nonce
	}
	if nonce == "" {
		o.tb.Fatalf("%s is not sent", typeURL)
	}
	return nonce
}

// TestClientsThatWaitHoldNothingByName: a client in its first sync takes next to no
// memory of its own, while its clusters, and then its endpoints, are in flight and its
// listeners wait.
func TestClientsThatWaitHoldNothingByName(t *testing.T) {
	const clusters, clients, limit = 6_000, 50, 24 << 10
	o := newOpening(t, clusters)
	var nonces []string
	each := func(what string, do func(i int)) {
		t.Helper()
		do(0) // what they share
		before := heap()
		for i := 1; i <= clients; i++ {
			do(i)
		}
		held := (heap() - before) / clients
		t.Logf("%s: a client holds %d bytes more", what, held)
		if held > limit {
			t.Errorf("%s: a client holds %d bytes more", what, held)
		}
	}
	each("clusters under way", func(int) { nonces = append(nonces, o.next(o.connect(), cds)) })
	each("endpoints under way", func(i int) {
		f := o.sequencers[i]
		f.Request(eds, protocol.Request{Subscribe: o.names.Of(o.asked)}, o.now)
		nonce := o.next(f, eds)
		f.Request(cds, protocol.Request{Nonce: nonces[i]}, o.now)
		nonces[i] = nonce
		for typeURL := range f.Responses(o.now) {
			t.Fatalf("%s is sent before the endpoints are there", typeURL)
		}
		if waiting, _ := f.Waiting(lds); waiting != clusters {
			t.Fatalf("%d listeners wait", waiting)
		}
	})
	each("listeners under way", func(i int) {
		o.sequencers[i].Request(eds, protocol.Request{Nonce: nonces[i]}, o.now)
		o.next(o.sequencers[i], lds)
	})
	runtime.KeepAlive(o)
}

func heap() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestWhatWaitsTogetherIsLateTogether: listeners that wait for the first clusters are
// sent without them once the limit has passed, no later.
func TestWhatWaitsTogetherIsLateTogether(t *testing.T) {
	o := newOpening(t, 20)
	f := o.connect()
	o.next(f, cds)
	if at := f.Wake(); !at.Equal(o.now.Add(limits.Ready)) {
		t.Fatalf("it would wake at %v", at)
	}
	o.now = o.now.Add(limits.Ready)
	o.next(f, lds)
	if late := f.Late(); len(late) != 20 {
		t.Errorf("%d listeners are late: %v", len(late), late)
	}
}

// TestAClientThatGoesOnIsWaitedFor: a client in its first sync takes almost the whole
// limit for each step. It is sent listeners once it has all that they need, and none
// before.
func TestAClientThatGoesOnIsWaitedFor(t *testing.T) {
	o := newOpening(t, 20)
	f := o.connect()
	clusters := o.next(f, cds)
	step := func(typeURL string, q protocol.Request) {
		t.Helper()
		o.now = o.now.Add(limits.Ready * 9 / 10)
		for typeURL := range f.Responses(o.now) {
			t.Fatalf("%s is sent to a client that goes on", typeURL)
		}
		f.Request(typeURL, q, o.now)
	}
	step(eds, protocol.Request{Subscribe: o.names.Of(o.asked)})
	endpoints := o.next(f, eds)
	step(cds, protocol.Request{Nonce: clusters})
	step(eds, protocol.Request{Nonce: endpoints})
	o.next(f, lds)
	if late := f.Late(); len(late) > 0 {
		t.Errorf("listeners are late: %v", late)
	}
}

// TestAClientThatStopsIsNotWaitedFor: a client goes on with its first sync for a while
// and then stops. It is sent listeners when the limit has passed since its last progress.
// ACKs of changed clusters are no progress.
func TestAClientThatStopsIsNotWaitedFor(t *testing.T) {
	o := newOpening(t, 20)
	f := o.connect()
	clusters := o.next(f, cds)
	o.now = o.now.Add(limits.Ready / 2)
	f.Request(eds, protocol.Request{Subscribe: o.names.Of(o.asked)}, o.now)
	o.next(f, eds)
	f.Request(cds, protocol.Request{Nonce: clusters}, o.now)
	last := o.now
	for n := range 3 { // clusters change, and it takes those
		o.now = o.now.Add(limits.Ready / 4)
		own := made(t, cds, fmt.Sprintf("inbound|another-%d", n), "")
		f.SetDesired(func(typeURL string) resource.Set {
			if typeURL == cds {
				return o.shared[cds].Set(own.Name, own)
			}
			return o.shared[typeURL]
		}, int64(n+2))
		for typeURL, r := range f.Responses(o.now) {
			if typeURL == lds {
				t.Fatal("listeners are sent before the limit")
			}
			f.Request(typeURL, protocol.Request{Nonce: r.Nonce}, o.now)
		}
	}
	if at := f.Wake(); !at.Equal(last.Add(limits.Ready)) {
		t.Errorf("it would wake %s after it went on", at.Sub(last))
	}
	o.now = last.Add(limits.Ready)
	o.next(f, lds)
	if late := f.Late(); len(late) != 20 {
		t.Errorf("%d listeners are late: %v", len(late), late)
	}
}

// TestAClientThatTakesAPartIsWaitedFor: a large response may be on the wire for long.
func TestAClientThatTakesAPartIsWaitedFor(t *testing.T) {
	o := newOpening(t, 20)
	var took time.Time
	asked := 0
	o.limits.LastActivity = func() (time.Time, time.Time) { asked++; return time.Time{}, took }
	f := o.connect()
	o.next(f, cds)
	o.now = o.now.Add(limits.Ready)
	took = o.now.Add(-time.Second)
	if asked > 0 {
		t.Error("it is asked what the client did, though nothing waits for that")
	}
	for typeURL := range f.Responses(o.now) {
		t.Fatalf("%s is sent to a client that takes clusters", typeURL)
	}
	if at := f.Wake(); !at.Equal(took.Add(limits.Ready)) {
		t.Errorf("it would wake after %s", at.Sub(took))
	}
	o.now = took.Add(limits.Ready)
	o.next(f, lds)
	asked = 0
	for range f.Responses(o.now) {
	}
	if asked > 0 {
		t.Error("it is opening still")
	}
}

// TestMuchIsWaitedForLonger: a client gets a second more for each megabyte of a first
// response, until it answers that.
func TestMuchIsWaitedForLonger(t *testing.T) {
	o := newOpening(t, 20)
	large, err := protocoltest.Resource(cds, "large", strings.Repeat("x", 3<<20))
	if err != nil {
		t.Fatal(err)
	}
	o.shared[cds] = o.shared[cds].Set(large.Name, large)
	f := o.connect()
	clusters := o.next(f, cds)
	if at := f.Wake(); !at.Equal(o.now.Add(limits.Ready + 3*time.Second)) {
		t.Errorf("it would wake after %s", at.Sub(o.now))
	}
	o.now = o.now.Add(limits.Ready + 2*time.Second)
	for typeURL := range f.Responses(o.now) {
		t.Fatalf("%s is sent to a client that has much to take", typeURL)
	}
	f.Request(eds, protocol.Request{Subscribe: o.names.Of(o.asked)}, o.now)
	o.next(f, eds)
	f.Request(cds, protocol.Request{Nonce: clusters}, o.now)
	if at := f.Wake(); !at.Equal(o.now.Add(limits.Ready)) {
		t.Errorf("with the clusters taken it would wake after %s", at.Sub(o.now))
	}
}

// TestAnAnswerEndsTheTimeForItsOwnTypeOnly: an Envoy requests endpoints before it answers
// clusters. So large endpoints may be in flight when it answers.
func TestAnAnswerEndsTheTimeForItsOwnTypeOnly(t *testing.T) {
	o := newOpening(t, 20)
	large := func(typeURL, name string, size int) {
		r, err := protocoltest.Resource(typeURL, name, strings.Repeat("x", size))
		if err != nil {
			t.Fatal(err)
		}
		o.shared[typeURL] = o.shared[typeURL].Set(name, r)
	}
	large(cds, "large", 3<<20)
	large(eds, o.asked[0], 4<<20)
	f := o.connect()
	clusters := o.next(f, cds)
	f.Request(eds, protocol.Request{Subscribe: o.names.Of(o.asked)}, o.now)
	if at := f.Wake(); !at.Equal(o.now.Add(limits.Ready + 3*time.Second)) {
		t.Errorf("with clusters to answer it would wake after %s", at.Sub(o.now))
	}
	endpoints := o.next(f, eds)
	f.Request(cds, protocol.Request{Nonce: clusters}, o.now)
	if at := f.Wake(); !at.Equal(o.now.Add(limits.Ready + 4*time.Second)) {
		t.Errorf("with endpoints to answer it would wake after %s", at.Sub(o.now))
	}
	o.now = o.now.Add(limits.Ready + 3*time.Second)
	for typeURL := range f.Responses(o.now) {
		t.Fatalf("%s is sent to a client that has much to take", typeURL)
	}
	f.Request(eds, protocol.Request{Nonce: endpoints}, o.now)
	o.next(f, lds)
	if late := f.Late(); len(late) > 0 {
		t.Errorf("listeners are late: %v", late)
	}
}

// BenchmarkOpening measures the first sync of a client that has its endpoints before its
// listeners go, in a mesh where another client did the same before.
func BenchmarkOpening(b *testing.B) {
	o := newOpening(b, 6_000)
	up := func() {
		f := o.connect()
		clusters := o.next(f, cds)
		f.Request(eds, protocol.Request{Subscribe: o.names.Of(o.asked)}, o.now)
		endpoints := o.next(f, eds)
		f.Request(cds, protocol.Request{Nonce: clusters}, o.now)
		f.Request(eds, protocol.Request{Nonce: endpoints}, o.now)
		f.Request(lds, protocol.Request{Nonce: o.next(f, lds)}, o.now)
	}
	up()
	b.ReportAllocs()
	for b.Loop() {
		up()
		o.sequencers = o.sequencers[:1]
	}
}
