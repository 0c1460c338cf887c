package policy_test

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
	"github.com/portolan-mesh/portolan/xds/generate/policy/policytest"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

const (
	allow  = security.AuthorizationPolicy_ALLOW
	deny   = security.AuthorizationPolicy_DENY
	audit  = security.AuthorizationPolicy_AUDIT
	custom = security.AuthorizationPolicy_CUSTOM
)

// everyField has each field and each condition, in rules of their own where only some
// platforms judge them.
const everyField = `{action: %s, rules: [
  {from: [{source: {principals: [td/ns/a/sa/b, 'td/*', '*/sa/x.y', '*'], notPrincipals: [td2/ns/a/sa/c, other/ns/a/sa/d]}},
          {source: {namespaces: [a, 'b-*', '*-c', '*'], notNamespaces: [d], ipBlocks: [10.0.0.1, 10.1.2.3/16, '2001:db8::1/32'], notIpBlocks: [10.0.0.2]}},
          {source: {trustDomains: [td.example, 'x*', '*y', '*'], notTrustDomains: [z]}},
          {source: {serviceAccounts: [web, other/web.v1], notServiceAccounts: [db]}}],
   to: [{operation: {ports: ['80'], notPorts: ['81', '82']}}],
   when: [{key: destination.ip, values: [10.0.0.3]}, {key: destination.port, notValues: ['90']}, {key: source.ip, values: [10.0.0.4]},
          {key: source.namespace, values: [m]}, {key: source.principal, values: [cluster.local/ns/a/sa/b]}, {key: source.serviceAccount, values: [s]},
          {key: source.trustDomain, values: [t]}]},
  {to: [{operation: {hosts: [a.example, '*.example', 'a.*', '*'], notHosts: [b], methods: [GET, 'P*', '*T', '*'], notMethods: [PUT], paths: [/a, '/a/*', '*/b', '*'], notPaths: [/c]}}],
   when: [{key: 'request.headers[x-a]', values: [v, 'v*', '*v', '*'], notValues: [w]}]},
  {to: [{operation: {paths: ['/a/{*}/{**}'], notPaths: ['/b/{*}']}}]},
  {from: [{source: {remoteIpBlocks: [1.2.3.4], notRemoteIpBlocks: [1.2.0.0/16]}}],
   when: [{key: remote.ip, values: [1.2.3.5]}, {key: connection.sni, values: [a, 'a*', '*a', '*'], notValues: [b]},
          {key: 'experimental.envoy.filters.network.mysql_proxy[db.table]', values: ['[update]', plain], notValues: ['[drop*]']}]},
  {from: [{source: {requestPrincipals: [iss/sub, iss, 'https://i/t/s', 'https://i*', 'https://i/*', 'i*', '*s', '*/s', '*i/s', '*'], notRequestPrincipals: [x/y]}}],
   when: [{key: request.auth.principal, values: ['*']}, {key: request.auth.audiences, values: [a, b], notValues: [c]}, {key: request.auth.presenter, values: [p]},
          {key: 'request.auth.claims[groups]', values: [g]}, {key: 'request.auth.claims[a][b]', notValues: ['c*']}]},
  {when: [{key: 'request.headers[grpc-timeout]', values: ['*']}]},
  {when: [{key: source.port, values: ['1']}]},
  {}]}`

// options are those of a mesh with an alias of its trust domain.
func options() policy.Options { return policy.Options{TrustDomains: []string{"td", "td2"}} }

// policies reads documents of policies.
func policies(tb testing.TB, documents ...string) []*config.Config {
	tb.Helper()
	var out []*config.Config
	for _, document := range documents {
		decoded, err := config.Decode("test", []byte(document), schema.Pilot().Type)
		if err != nil {
			tb.Fatal(err)
		}
		for _, d := range decoded {
			out = append(out, d.Config)
		}
	}
	return out
}

func object(name, spec string, arguments ...any) string {
	return xdstest.Object("AuthorizationPolicy", name, fmt.Sprintf(spec, arguments...))
}

// dry marks a document as only watched.
func dry(document string) string {
	return strings.Replace(document, "metadata: {", "metadata: {annotations: {istio.io/dry-run: 'true'}, ", 1)
}

// TestGolden compares the filters of all fields and conditions with testdata, for each
// platform and action. Review the diff after -update.
func TestGolden(t *testing.T) {
	t.Parallel()
	everything := func(action string) []*config.Config {
		return policies(t, object("ns/every", everyField, action), object("ns/nothing", "{action: %s}", action),
			dry(object("ns/watched", "{action: %s, rules: [{to: [{operation: {ports: ['1']}}]}]}", action)))
	}
	for file, filter := range map[string]proto.Message{
		"http-allow.yaml":    policy.HTTP(everything("ALLOW"), allow, options()),
		"http-deny.yaml":     policy.HTTP(everything("DENY"), deny, options()),
		"http-audit.yaml":    policy.HTTP(policies(t, object("ns/a", "{action: AUDIT, rules: [{}]}")), audit, options()),
		"network-allow.yaml": policy.Network(everything("ALLOW"), allow, options()),
		"network-deny.yaml":  policy.Network(everything("DENY"), deny, options()),
		"grpc-allow.yaml":    policy.GRPC(everything("ALLOW"), allow, options()),
		"grpc-deny.yaml":     policy.GRPC(everything("DENY"), deny, options()),
	} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			xdstest.Golden(t, file, filter)
		})
	}
}

// TestNoPolicies: without a policy of the action the filter has no rules, and refuses nothing.
func TestNoPolicies(t *testing.T) {
	t.Parallel()
	other := policies(t, object("ns/a", "{action: AUDIT, rules: [{}]}"))
	for _, action := range []security.AuthorizationPolicy_Action{allow, deny} {
		if got := policy.HTTP(other, action, options()); !proto.Equal(got, &httprbacv3.RBAC{}) {
			t.Errorf("HTTP %s: %v", action, got)
		}
		if got := policy.Network(nil, action, options()); got.GetRules() != nil || got.GetShadowRules() != nil {
			t.Errorf("network %s: %v", action, got)
		}
		if got := policy.GRPC(other, action, options()); got != nil {
			t.Errorf("gRPC %s: %v", action, got)
		}
	}
	if got := policy.GRPC(other, audit, options()); got != nil {
		t.Errorf("gRPC servers get a filter that logs: %v", got)
	}
}

// TestDryRun: what is only watched is not enforced, and not sent to gRPC servers.
func TestDryRun(t *testing.T) {
	t.Parallel()
	watched := policies(t, dry(object("ns/a", "{rules: [{}]}")), dry(object("ns/d", "{action: DENY, rules: [{}]}")))
	for action, prefix := range map[security.AuthorizationPolicy_Action]string{allow: "istio_dry_run_allow_", deny: "istio_dry_run_deny_"} {
		got := policy.HTTP(watched, action, options())
		if got.GetRules() != nil || len(got.GetShadowRules().GetPolicies()) != 1 || got.GetShadowRulesStatPrefix() != prefix {
			t.Errorf("%s: %v", action, got)
		}
		if got := policy.GRPC(watched, action, options()); got != nil {
			t.Errorf("%s: a gRPC server gets %v", action, got)
		}
	}
	if got := policy.HTTP(policies(t, strings.Replace(object("ns/a", "{}"), "metadata: {", "metadata: {annotations: {istio.io/dry-run: perhaps}, ", 1)), allow, options()); got.GetRules() == nil {
		t.Error("a policy with a value that is neither true nor false is not enforced")
	}
}

// TestHiddenFields: a policy tells what TCP connections and gRPC servers cannot judge.
func TestHiddenFields(t *testing.T) {
	t.Parallel()
	spec := policies(t, object("ns/every", everyField, "DENY"))[0].Spec.(*security.AuthorizationPolicy)
	rule := func(i int, fields ...string) []string {
		for j, f := range fields {
			fields[j] = fmt.Sprintf("spec.rules[%d].%s", i, f)
		}
		return fields
	}
	tokens := rule(4, "from[0].source.requestPrincipals", "from[0].source.notRequestPrincipals", "when[0].key", "when[1].key", "when[2].key", "when[3].key", "when[4].key")
	templates := rule(2, "to[0].operation.paths", "to[0].operation.notPaths")
	tcp := slices.Concat(
		rule(1, "to[0].operation.hosts", "to[0].operation.notHosts", "to[0].operation.methods", "to[0].operation.notMethods", "to[0].operation.paths", "to[0].operation.notPaths", "when[0].key"),
		templates, tokens, rule(5, "when[0].key"))
	if d := cmp.Diff(tcp, policy.NotForTCP(spec)); d != "" {
		t.Errorf("TCP (-want +got):\n%s", d)
	}
	grpc := slices.Concat(templates, rule(3, "from[0].source.remoteIpBlocks", "from[0].source.notRemoteIpBlocks", "when[0].key", "when[1].key", "when[2].key"), tokens, rule(5, "when[0].key"))
	if d := cmp.Diff(grpc, policy.NotForGRPC(spec)); d != "" {
		t.Errorf("gRPC (-want +got):\n%s", d)
	}
}

// TestCustom: a request or connection that CUSTOM policies match has the name of the policy and of
// its provider, and is not refused by that.
func TestCustom(t *testing.T) {
	t.Parallel()
	all := policies(t, object("ns/a", "{action: CUSTOM, provider: {name: opa}, rules: [{to: [{operation: {paths: [/a]}}]}]}"),
		object("ns/b", "{action: CUSTOM, provider: {name: opa-2}, rules: [{}]}"), object("ns/c", "{action: DENY, rules: [{}]}"))
	const key = "istio-ext-authz-opa-ns[ns]-policy[a]-rule[0]"
	requests, connections := policy.Custom(all, options()), policy.CustomNetwork(all, options())
	if requests.GetRules() != nil || requests.GetShadowRulesStatPrefix() != "istio_ext_authz_" {
		t.Errorf("requests: %v", requests)
	}
	want := []string{key, "istio-ext-authz-opa-2-ns[ns]-policy[b]-rule[0]"}
	slices.Sort(want)
	if got := slices.Sorted(maps.Keys(requests.GetShadowRules().GetPolicies())); !slices.Equal(got, want) {
		t.Errorf("requests are selected by %v", got)
	}
	if !proto.Equal(connections.GetShadowRules().GetPolicies()[key].GetPermissions()[0].GetAndRules().GetRules()[0], &rbacv3.Permission{Rule: &rbacv3.Permission_Any{Any: true}}) {
		t.Errorf("a connection is asked about less: %v", connections)
	}
	if m := policy.Custom(nil, options()); m.GetShadowRules() != nil || m.GetShadowRulesStatPrefix() != "" {
		t.Errorf("without policies: %v", m)
	}
}

// TestDeterministic: equal policies make equal bytes.
func TestDeterministic(t *testing.T) {
	t.Parallel()
	build := func() []byte {
		all := policies(t, object("ns/every", everyField, "DENY"), object("ns/b", everyField, "DENY"))
		return message.Pack(policy.HTTP(all, deny, options())).GetValue()
	}
	for range 5 {
		if !bytes.Equal(build(), build()) {
			t.Fatal("the bytes differ")
		}
	}
}

// BenchmarkBig translates and marshals big sets of policies.
func BenchmarkBig(b *testing.B) {
	for _, group := range policytest.Big(b) {
		b.Run(group.Name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				packed := message.Pack(policy.HTTP(group.Policies, allow, options()))
				b.ReportMetric(float64(len(packed.GetValue())), "bytes")
			}
		})
	}
}

// TestCustomOfServers: a gRPC server asks nobody, and refuses what CUSTOM policies match.
func TestCustomOfServers(t *testing.T) {
	t.Parallel()
	w := xdstest.NewWorld(t, xdstest.Object("AuthorizationPolicy", "shop/a", "{action: CUSTOM, provider: {name: opa}, rules: [{to: [{operation: {ports: ['80']}}]}]}"))
	node := xdstest.Node{Namespace: "shop", Type: discovery.Proxyless}
	v := w.View(node).Of(node.Proxy(t))
	var got []string
	for s := range policy.HTTPSlots() {
		if filter := s.GRPC(v); filter != nil {
			got = append(got, filter.GetRules().GetAction().String())
			for name := range filter.GetRules().GetPolicies() {
				got = append(got, name)
			}
		}
	}
	if want := []string{"DENY", "ns[shop]-policy[a]-rule[0]"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
