package envoy_test

import (
	"testing"

	"github.com/portolan-mesh/portolan/xds/envoy"
)

func TestOperationName(t *testing.T) {
	t.Parallel()
	one := []envoy.WeightedCluster{{Name: "outbound|80|v1|web.example.com"}}
	two := []envoy.WeightedCluster{{Name: "outbound|80|v1|web.example.com", Weight: 1}, {Name: "other", Weight: 1}}
	for name, c := range map[string]struct {
		match    envoy.MatchOptions
		clusters []envoy.WeightedCluster
		want     string
	}{
		"prefix": {envoy.MatchOptions{}, one, "web.example.com:80/*"},
		"exact":  {envoy.MatchOptions{Path: envoy.StringMatch{Kind: envoy.Exact, Value: "/a"}}, one, "web.example.com:80/a"},
		"regex":  {envoy.MatchOptions{Path: envoy.StringMatch{Kind: envoy.Regex, Value: "/a.*"}}, one, "web.example.com:80/a.*"},
		"several clusters": {
			envoy.MatchOptions{Path: envoy.StringMatch{Kind: envoy.Prefix, Value: "/a"}}, two, "shop:8080/a*",
		},
	} {
		r := envoy.RouteOptions{Match: c.match, Forward: &envoy.Forward{Clusters: c.clusters}}
		if got := r.OperationName("shop", 8080); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
