package mesh_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestAHashIsThatOfThePolicy: Hash comes from the policy of a port and subset. A resource
// that reads only the hash does not depend on a rule without one.
func TestAHashIsThatOfThePolicy(t *testing.T) {
	t.Parallel()
	const (
		none   = "{simple: RANDOM}"
		header = "{consistentHash: {httpHeaderName: x}}"
		source = "{consistentHash: {useSourceIp: true}}"
	)
	rules := map[string]string{
		"no policy":        "subsets: [{name: v1}]",
		"of the host":      "trafficPolicy: {loadBalancer: " + header + "}, subsets: [{name: v1}]",
		"of a port":        "trafficPolicy: {loadBalancer: " + header + ", portLevelSettings: [{port: {number: 80}, loadBalancer: " + source + "}]}, subsets: [{name: v1}]",
		"a port with none": "trafficPolicy: {loadBalancer: " + header + ", portLevelSettings: [{port: {number: 80}, connectionPool: {tcp: {maxConnections: 1}}}]}, subsets: [{name: v1}]",
		"of a subset":      "subsets: [{name: v1, trafficPolicy: {loadBalancer: " + source + "}}]",
		"a subset with another": "trafficPolicy: {loadBalancer: " + header + "}, subsets: [{name: v1, trafficPolicy: {loadBalancer: " + none +
			", portLevelSettings: [{port: {number: 81}, loadBalancer: " + source + "}]}}]",
	}
	for what, rule := range rules {
		w := xdstest.NewWorld(t, xdstest.Object("ServiceEntry", "shop/a",
			"{hosts: [a.example], resolution: STATIC, ports: [{number: 80, name: http, protocol: HTTP}, {number: 81, name: http2, protocol: HTTP}]}"),
			xdstest.Object("DestinationRule", "shop/a", "{host: a.example, "+rule+"}"))
		v := w.View(xdstest.Node{Namespace: "shop"}).Recording()
		s := v.Service("a.example")
		for _, subset := range []string{"", "v1", "v2"} {
			for _, port := range []int{80, 81} {
				want := v.Rule(s).PolicyFor(subset, port).GetLoadBalancer().GetConsistentHash()
				if got := v.Hash(s, subset, port); !proto.Equal(want, got) {
					t.Errorf("%s: %v for port %d of subset %q, want %v", what, got, port, subset, want)
				}
			}
		}
		asked := w.View(xdstest.Node{Namespace: "shop"}).Recording()
		hashed := asked.Hash(s, "v1", 80) != nil
		w.Apply(xdstest.Object("DestinationRule", "shop/a", "{host: a.example, "+rule+", exportTo: ['*']}"))
		now, same := w.View(xdstest.Node{Namespace: "shop"}), true
		for _, r := range asked.Dependencies() {
			same = same && now.Answer(r.Query) == r.Answer
		}
		if same == hashed {
			t.Errorf("%s: a rule that was written anew answers the same: %v", what, same)
		}
	}
}
