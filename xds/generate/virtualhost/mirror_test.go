package virtualhost_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

func TestMirrors(t *testing.T) {
	t.Parallel()
	const onward = "route: [{destination: {host: web.example.com}}], "
	mirrored := func(mirror string) []string {
		return []string{web, reviews, routes("{" + onward + mirror + "}")}
	}
	to := simulate.Request{Host: "web.example.com"}
	run(t, []behaviour{
		{name: "all requests", mesh: mirrored("mirror: {host: reviews.example.com}"), request: to, want: toWeb + " mirrored 100% to " + toReviews},
		{name: "a share", mesh: mirrored("mirror: {host: reviews.example.com}, mirrorPercentage: {value: 0.57}"), request: to, want: toWeb + " mirrored 0.57% to " + toReviews},
		{name: "0 percent", mesh: mirrored("mirror: {host: reviews.example.com}, mirrorPercentage: {value: 0}"), request: to, want: toWeb},
		{name: "the deprecated percent", mesh: mirrored("mirror: {host: reviews.example.com}, mirrorPercent: 10"), request: to, want: toWeb + " mirrored 10% to " + toReviews},
		{name: "0 of it", mesh: mirrored("mirror: {host: reviews.example.com}, mirrorPercent: 0"), request: to, want: toWeb},
		{name: "percentage wins over percent", mesh: mirrored("mirror: {host: reviews.example.com}, mirrorPercent: 10, mirrorPercentage: {value: 20}"), request: to, want: toWeb + " mirrored 20% to " + toReviews},
		{name: "several", request: to, want: toWeb + " mirrored 100% to outbound|81|v1|reviews.example.com mirrored 5% to " + toReviews,
			mesh: mirrored("mirrors: [{destination: {host: reviews.example.com, subset: v1, port: {number: 81}}}, {destination: {host: reviews.example.com}, percentage: {value: 5}}, {destination: {host: web.example.com}, percentage: {value: 0}}]")},
		{name: "too few to draw", mesh: mirrored("mirrors: [{destination: {host: reviews.example.com}, percentage: {value: 0.00001}}]"), request: to, want: toWeb},
		{name: "not of a direct response", mesh: []string{web, reviews, routes("{directResponse: {status: 418}, mirror: {host: reviews.example.com}}")}, request: to, want: "418"},
	})
}

// A virtual host needs the clusters of its mirrors.
func TestMirrorsAreNeeded(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, web, reviews, routes("{route: [{destination: {host: web.example.com}}], mirror: {host: reviews.example.com}}"))
	for _, r := range w.Build(xdstest.Node{}, virtualhost.Generator{}) {
		if r.Name != "80/web.example.com:80" {
			continue
		}
		if diff := cmp.Diff(resource.TrafficTo([]string{toReviews, toWeb}), r.Needs); diff != "" {
			t.Error(diff)
		}
		return
	}
	t.Error("no virtual host")
}

// A Sidecar that imports a VirtualService also imports the services of its mirrors.
func TestMirrorsAreImported(t *testing.T) {
	t.Parallel()
	run(t, []behaviour{{
		name: "mirror", want: toWeb + " mirrored 100% to " + toReviews,
		mesh: []string{web, reviews, routes("{route: [{destination: {host: web.example.com}}], mirror: {host: reviews.example.com}}"),
			xdstest.Object("Sidecar", "s", "{egress: [{hosts: ['*/web.example.com']}]}")},
		request: simulate.Request{Host: "web.example.com"},
	}})
	w := xdstest.NewWorld(t, web, reviews, routes("{route: [{destination: {host: web.example.com}}], mirrors: [{destination: {host: reviews.example.com}}]}"),
		xdstest.Object("Sidecar", "s", "{egress: [{hosts: ['*/web.example.com']}]}"))
	if w.Simulate(xdstest.Node{}).Cluster(toReviews) == nil {
		t.Error("no cluster for the mirror")
	}
}
