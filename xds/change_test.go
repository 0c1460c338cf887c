package xds_test

import (
	"runtime"
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
		f.connections = append(f.connections, f.server.Connect(tb, f.context, nodes.Node(n)))
	}
	return f
}

// carry makes a change and carries it to all proxies; it counts the responses.
func (f *following) carry(tb testing.TB, kind string) (responses int) {
	f.do(kind)
	for _, c := range f.connections {
		responses += c.Push(tb, f.context)
	}
	return responses
}

// changeKinds are those whose cost for each proxy is bounded, and in how many
// responses it has them.
var changeKinds = map[string]int{"endpoint": 1, "VirtualService": 1, "DestinationRule": 2}

// BenchmarkChangePerProxy is what one change costs for each more proxy: what is
// left out is what it costs with one.
func BenchmarkChangePerProxy(b *testing.B) {
	for kind, responses := range changeKinds {
		b.Run(kind, func(b *testing.B) {
			one, many := newFollowing(b, 20), newFollowing(b, 420)
			count := func(f *following) (objects, bytes uint64) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				if got := f.carry(b, kind); got != responses*len(f.connections) {
					b.Fatalf("%d responses to %d proxies", got, len(f.connections))
				}
				runtime.ReadMemStats(&after)
				return after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc
			}
			one.carry(b, kind)
			many.carry(b, kind)
			var objects, bytes, baseObjects, baseBytes uint64
			n := 0
			for b.Loop() {
				n++
				b.StopTimer()
				o, by := count(one)
				baseObjects, baseBytes = baseObjects+o, baseBytes+by
				b.StartTimer()
				o, by = count(many)
				objects, bytes = objects+o, bytes+by
			}
			b.ReportMetric(float64(objects-baseObjects)/float64(400*n), "allocs/proxy")
			b.ReportMetric(float64(bytes-baseBytes)/float64(400*n), "B/proxy")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(420*n), "ns/proxy")
			b.ReportMetric(float64(baseBytes)/float64(n), "B/few")
		})
	}
}
