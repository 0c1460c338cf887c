package xds_test

import (
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// following are the connections of proxies that import 20 services of a mesh.
type following struct {
	*reference
	connections []xds.TestConnection
}

func newFollowing(tb testing.TB, proxies int) *following {
	tb.Helper()
	f := &following{reference: newReferenceOf(tb, refmesh.Mesh{Services: 200, PerNamespace: 20}, 0, true)}
	nodes := refmesh.Proxies{Mesh: f.mesh, Interception: string(discovery.InterceptionRedirect)}
	for n := range proxies {
		f.connections = append(f.connections, f.server.Connect(tb, f.now, nodes.Node(n)))
	}
	return f
}

// carry makes a change and carries it to all proxies; it counts the responses.
func (f *following) carry(tb testing.TB, kind string) (responses int) {
	f.do(kind)
	for _, c := range f.connections {
		responses += c.Push(tb, f.now)
	}
	return responses
}

// changeKinds are the kinds of change whose cost for each proxy is bounded: how many
// responses the proxy gets, and how much the server may allocate for it. That includes
// requests, and leaves out gRPC.
var changeKinds = map[string]struct {
	responses      int
	objects, bytes uint64
}{
	"endpoint":        {1, 16, 900},
	"VirtualService":  {1, 32, 1_700},
	"DestinationRule": {2, 36, 1_900}, // its clusters, and their endpoints as they warm
}

// cost makes a change and returns how much that allocates.
func (f *following) cost(tb testing.TB, kind string) (objects, bytes uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if got, want := f.carry(tb, kind), changeKinds[kind].responses*len(f.connections); got != want {
		tb.Fatalf("%s: %d responses to %d proxies, want %d", kind, got, len(f.connections), want)
	}
	runtime.ReadMemStats(&after)
	return after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc
}

// some is the number of proxies that gives each class one, and more how many are added to
// them.
const some, more = refmesh.Namespaces, 200

// TestAChangeCostsLittleForEachProxy: a change costs little for each further proxy of a
// class, whatever it costs for the first.
func TestAChangeCostsLittleForEachProxy(t *testing.T) {
	few, many := newFollowing(t, some), newFollowing(t, some+more)
	for kind, limit := range changeKinds {
		objects, bytes := ^uint64(0), ^uint64(0) // the least of several tries: other goroutines allocate too
		for try := 0; try < 5 || try < 50 && (objects > limit.objects || bytes > limit.bytes); try++ {
			fewObjects, fewBytes := few.cost(t, kind)
			manyObjects, manyBytes := many.cost(t, kind)
			objects, bytes = min(objects, (manyObjects-fewObjects)/more), min(bytes, (manyBytes-fewBytes)/more)
		}
		t.Logf("%s: %d objects, %d bytes", kind, objects, bytes)
		if objects > limit.objects || bytes > limit.bytes {
			t.Errorf("%s: %d objects and %d bytes for each proxy, more than %d and %d", kind, objects, bytes, limit.objects, limit.bytes)
		}
	}
}

// TestWhatRestsIsKnownAsWell: the server does not look at types that a change does not
// concern. What it notes of them is still what a look would find.
func TestWhatRestsIsKnownAsWell(t *testing.T) {
	f := newFollowing(t, 4)
	kinds := slices.Sorted(maps.Keys(changeKinds))
	random := rand.New(rand.NewPCG(6, 7))
	for range 100 {
		f.carry(t, kinds[random.IntN(len(kinds))])
		for _, c := range f.connections {
			if random.IntN(4) == 0 { // else its types stay idle
				c.CheckNotes(t)
			}
		}
	}
}

// BenchmarkChangePerProxy measures the time of one change for each proxy, and the
// allocations for each proxy beyond the first of its class.
func BenchmarkChangePerProxy(b *testing.B) {
	for kind := range changeKinds {
		b.Run(kind, func(b *testing.B) {
			few, many := newFollowing(b, some), newFollowing(b, some+more)
			few.cost(b, kind)
			many.cost(b, kind)
			var objects, bytes uint64
			n := 0
			for b.Loop() {
				n++
				b.StopTimer()
				fewObjects, fewBytes := few.cost(b, kind)
				b.StartTimer()
				manyObjects, manyBytes := many.cost(b, kind)
				objects, bytes = objects+manyObjects-fewObjects, bytes+manyBytes-fewBytes
			}
			b.ReportMetric(float64(objects)/float64(more*n), "allocs/proxy")
			b.ReportMetric(float64(bytes)/float64(more*n), "B/proxy")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64((some+more)*n), "ns/proxy")
		})
	}
}
