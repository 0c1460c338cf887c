package rest_test

import (
	"net/http"
	"slices"
	"sync/atomic"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	clientrest "k8s.io/client-go/rest"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

type counting struct {
	http.RoundTripper
	n *atomic.Int32
}

// RoundTrip implements http.RoundTripper.
func (c counting) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// TestAggregatedDiscovery: client-go learns all resources in two requests, and the same as in
// one request for each version.
func TestAggregatedDiscovery(t *testing.T) {
	t.Parallel()
	s := resttest.Start(t, 0, nil)
	discover := func(legacy bool) (map[string]metav1.APIResource, []string, int32) {
		var n atomic.Int32
		c, err := discovery.NewDiscoveryClientForConfig(&clientrest.Config{Host: s.URL, Transport: counting{s.HTTP.Transport, &n}})
		if err != nil {
			t.Fatal(err)
		}
		c.UseLegacyDiscovery = legacy
		groups, lists, err := c.ServerGroupsAndResources()
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]metav1.APIResource{}
		for _, l := range lists {
			for _, r := range l.APIResources {
				all[l.GroupVersion+"/"+r.Name] = r
			}
		}
		var preferred []string
		for _, g := range groups {
			preferred = append(preferred, g.PreferredVersion.GroupVersion)
		}
		return all, preferred, n.Load()
	}
	at, preferred, n := discover(false)
	each, legacyPreferred, _ := discover(true)
	if n != 2 || len(at) != len(each) || !slices.Equal(preferred, legacyPreferred) {
		t.Errorf("%d requests, %d resources and not %d, %q and not %q", n, len(at), len(each), preferred, legacyPreferred)
	}
	for name, want := range each {
		got := at[name]
		if got.Kind != want.Kind || got.Namespaced != want.Namespaced || !slices.Equal(got.Verbs, want.Verbs) ||
			!slices.Equal(got.ShortNames, want.ShortNames) || !slices.Equal(got.Categories, want.Categories) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
	for _, kind := range schema.Pilot().All() {
		r := each[kind.APIVersions()[0]+"/"+kind.Plural]
		if slices.Contains(r.Categories, "all") == kind.Internal || !slices.Contains(r.Categories, "portolan") {
			t.Errorf("%s: categories %q", kind.Kind, r.Categories)
		}
	}
}
