package route_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/route"
	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// tableOf builds the frame and the virtual hosts of the HTTP port of a reference mesh,
// and returns them with their view.
func tableOf(tb testing.TB, services int, delta bool) (v *mesh.View, own *resource.Resource, hosts []*resource.Resource) {
	tb.Helper()
	w := xdstest.NewWorld(tb)
	w.Put(refmesh.Mesh{Services: services}.Objects()...)
	v = w.View(xdstest.Node{RouteDelta: delta})
	own, err := generate.Build(route.Generator{}, v, fmt.Sprint(refmesh.HTTPPort))
	if err != nil || own == nil {
		tb.Fatal(own, err)
	}
	for i := range services {
		h, err := generate.Build(virtualhost.Generator{}, v, hostName(i))
		if err != nil || h == nil {
			tb.Fatal(h, err)
		}
		hosts = append(hosts, h)
	}
	slices.SortFunc(hosts, func(a, b *resource.Resource) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return v, own, hosts
}

func hostName(service int) string {
	return route.HostName(fmt.Sprint(refmesh.HTTPPort), refmesh.Host(service), refmesh.HTTPPort)
}

// BenchmarkOneChangedHost measures what a route configuration of the reference mesh costs
// when one host changed: building the host, and composing the whole. For comparison it
// also copies the bytes.
func BenchmarkOneChangedHost(b *testing.B) {
	for _, services := range []int{100, 1000, 5000} {
		v, own, hosts := tableOf(b, services, false)
		_, frame, _ := tableOf(b, 1, true)
		table, err := route.Generator{}.Compose(own, slices.Values(hosts))
		if err != nil {
			b.Fatal(err)
		}
		for _, c := range []struct {
			name string
			work func() error
		}{
			{"build one host", func() error {
				_, err := generate.Build(virtualhost.Generator{}, v.Recording(), hostName(refmesh.Target))
				return err
			}},
			{"compose the whole table", func() error {
				_, err := route.Generator{}.Compose(own, slices.Values(hosts))
				return err
			}},
			{"compose for hosts by delta", func() error {
				_, err := route.Generator{}.Compose(frame, slices.Values(hosts))
				return err
			}},
			{"copy the bytes", func() error {
				sink = slices.Clone(table.Body.GetValue())
				return nil
			}},
		} {
			b.Run(fmt.Sprintf("services=%d/%s", services, c.name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := c.work(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

var sink []byte

// TestOneHostCostsTheSameInAnyMesh: building one host allocates the same among 2,000
// services as among 50, and so does the frame if hosts come by delta. Composing a whole
// route configuration takes few allocations, whatever its size.
func TestOneHostCostsTheSameInAnyMesh(t *testing.T) {
	costs := func(services int) (build, whole, delta float64) {
		v, own, hosts := tableOf(t, services, false)
		_, frame, _ := tableOf(t, 1, true)
		build = testing.AllocsPerRun(20, func() {
			if _, err := generate.Build(virtualhost.Generator{}, v.Recording(), hostName(4)); err != nil {
				t.Fatal(err)
			}
		})
		compose := func(own *resource.Resource) float64 {
			return testing.AllocsPerRun(20, func() {
				if _, err := (route.Generator{}).Compose(own, slices.Values(hosts)); err != nil {
					t.Fatal(err)
				}
			})
		}
		return build, compose(own), compose(frame)
	}
	fewBuild, fewWhole, fewDelta := costs(50)
	manyBuild, manyWhole, manyDelta := costs(2000)
	t.Logf("allocations among 50 and 2,000 services: a host %.0f and %.0f, a whole table %.0f and %.0f, its frame %.0f and %.0f",
		fewBuild, manyBuild, fewWhole, manyWhole, fewDelta, manyDelta)
	if manyBuild > 1.2*fewBuild || manyDelta > fewDelta || manyWhole > 3*fewWhole {
		t.Error("the cost of one host follows the size of the mesh")
	}
}
