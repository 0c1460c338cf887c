package verdict_test

import (
	"fmt"
	"testing"

	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/index"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// large returns the index of a mesh, and its facts after one object has changed. Each service
// has a rule and routes; every tenth has a Gateway and a Sidecar.
func large(tb testing.TB, services int, change string) (*index.Index, verdict.Facts) {
	var documents []string
	for i := range services {
		h := fmt.Sprintf("s%d.example.com", i)
		documents = append(documents, xdstest.HTTPService(fmt.Sprint("s", i), h, fmt.Sprintf("10.%d.%d.%d", i>>16&255, i>>8&255, i&255)),
			rule(fmt.Sprint("s", i), "{host: "+h+", subsets: [{name: v1, labels: {version: v1}}]}"),
			routes(fmt.Sprint("s", i), "{hosts: ["+h+"], http: [{delegate: {name: d"+fmt.Sprint(i)+"}}, {route: [{destination: {host: "+h+"}}]}]}"),
			routes(fmt.Sprint("d", i), "{http: [{match: [{uri: {prefix: /a}}], route: [{destination: {host: "+h+"}}]}]}"))
		if i%10 == 7 {
			documents = append(documents,
				gateway(fmt.Sprint("g", i), fmt.Sprintf("{selector: {app: g%d}, servers: [{port: {number: %d, name: http, protocol: HTTP}, hosts: ['%s']}]}", i, 1000+i, h)),
				sidecar(fmt.Sprintf("n%d/s%d", i, i), "{egress: [{hosts: ['default/"+h+"']}]}"))
		}
	}
	w := xdstest.NewWorld(tb, documents...)
	var x *index.Index
	x = x.Next(verdict.Facts{Mesh: w.Context()})
	w.Apply(change)
	return x, verdict.Facts{Mesh: w.Context()}
}

// TestOneObjectCostsTheSameInALargeMesh: judging a change of one object allocates at most twice
// as much as among 100 services.
func TestOneObjectCostsTheSameInALargeMesh(t *testing.T) {
	services := longtest.Histories(500, 10_000)
	for name, change := range map[string]string{
		"VirtualService":  routes("s7", `{hosts: [s7.example.com], http: [{route: [{destination: {host: s8.example.com, subset: v2}}]}]}`),
		"delegate":        routes("d7", `{http: [{route: [{destination: {host: s8.example.com, subset: v2}}]}]}`),
		"DestinationRule": rule("s7", `{host: s7.example.com, subsets: [{name: v1, labels: {version: v2}}]}`),
		"ServiceEntry":    xdstest.HTTPService("s7", "s7.example.com", "10.0.0.200"),
		"Gateway":         gateway("g7", "{selector: {app: g17}, servers: [{port: {number: 1017, name: http, protocol: TCP}, hosts: ['*']}]}"),
		"Sidecar":         sidecar("n7/s7", "{egress: [{hosts: ['default/s8.example.com', 'default/none.example.com']}]}"),
	} {
		few, many := 0.0, 0.0
		for services, allocs := range map[int]*float64{100: &few, services: &many} {
			x, to := large(t, services, change)
			*allocs = testing.AllocsPerRun(20, func() { x.Next(to) })
		}
		if many > 2*few {
			t.Errorf("%s: %v allocations among %d services, %v among 100", name, many, services, few)
		}
		t.Logf("%s: %v allocations among %d services, %v among 100", name, many, services, few)
	}
}

func BenchmarkNext(b *testing.B) {
	x, to := large(b, 500, routes("s7", `{hosts: [s7.example.com], http: [{route: [{destination: {host: s8.example.com, subset: v2}}]}]}`))
	b.ReportAllocs()
	for b.Loop() {
		x.Next(to)
	}
}
