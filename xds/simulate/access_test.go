package simulate_test

import (
	"errors"
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	rbacv3 "github.com/envoyproxy/go-control-plane/envoy/config/rbac/v3"
	httprbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/rbac/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/rbac"
	"github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// rules match what a permission matches, from anybody.
func rules(action rbacv3.RBAC_Action, p *rbac.Permission) *rbacv3.RBAC {
	return &rbacv3.RBAC{Action: action, Policies: map[string]*rbacv3.Policy{
		"ns[shop]-policy[web]-rule[2]": rbac.Policy([]*rbac.Permission{p}, []*rbac.Principal{rbac.PrincipalAny()}),
	}}
}

// found is where a filter's configuration comes from: a resource, until then the default.
func found(byDefault *anypb.Any, types ...proto.Message) *corev3.ExtensionConfigSource {
	out := &corev3.ExtensionConfigSource{ConfigSource: message.ADS(), DefaultConfig: byDefault, ApplyDefaultConfigWithoutWarming: byDefault != nil}
	for _, m := range types {
		out.TypeUrls = append(out.TypeUrls, "type.googleapis.com/"+string(proto.MessageName(m)))
	}
	return out
}

// workload has one listener, with network filters before its HTTP or, without HTTP filters, its
// TCP proxy; and configurations of filters by name.
func workload(t *testing.T, network []*listenerv3.Filter, http []*hcmv3.HttpFilter, extensions map[string]proto.Message) (*simulate.Proxy, error) {
	t.Helper()
	last := envoy.TCPProxy(envoy.TCPProxyOptions{StatPrefix: "tcp"})
	if http != nil {
		last = envoy.HTTPConnectionManager(envoy.HTTPOptions{
			StatPrefix: "http", Filters: append(http, envoy.RouterFilter()), RouteConfig: envoy.RouteConfig(envoy.RouteConfigOptions{Name: "r"}),
		})
	}
	l := envoy.Listener(envoy.ListenerOptions{Name: "virtualInbound", Host: "0.0.0.0", Port: 15006, FilterChains: []*listenerv3.FilterChain{
		envoy.FilterChain(envoy.FilterChainOptions{Filters: append(network, last)}),
	}})
	r, err := resource.New("virtualInbound", l)
	if err != nil {
		t.Fatal(err)
	}
	resources := []*resource.Resource{r}
	for name, config := range extensions {
		packed, err := anypb.New(config)
		if err != nil {
			t.Fatal(err)
		}
		r, err := resource.New(name, &corev3.TypedExtensionConfig{Name: name, TypedConfig: packed})
		if err != nil {
			t.Fatal(err)
		}
		resources = append(resources, r)
	}
	return simulate.New(resources)
}

func byDiscovery(byDefault *anypb.Any) []*hcmv3.HttpFilter {
	return []*hcmv3.HttpFilter{{Name: "deny", ConfigType: &hcmv3.HttpFilter_ConfigDiscovery{ConfigDiscovery: found(byDefault, &httprbacv3.RBAC{})}}}
}

// TestDiscoveredFilter: a filter has the configuration of the resource with its name, else its
// default; without either, and with one of another type, nothing is served.
func TestDiscoveredFilter(t *testing.T) {
	t.Parallel()
	refusing := message.Pack(&httprbacv3.RBAC{Rules: &rbacv3.RBAC{}})
	denies := &httprbacv3.RBAC{Rules: rules(rbacv3.RBAC_DENY, rbac.PermissionPath(rbac.Exact("/a")))}
	for name, test := range map[string]struct {
		byDefault  *anypb.Any
		extensions map[string]proto.Message
		path, want string
	}{
		"the resource refuses":     {refusing, map[string]proto.Message{"deny": denies}, "/a", "403 RBAC: access denied"},
		"the resource lets pass":   {refusing, map[string]proto.Message{"deny": denies}, "/b", simulate.ErrNoVirtualHost.Error()},
		"the default":              {refusing, map[string]proto.Message{"other": denies}, "/b", "403 RBAC: access denied"},
		"neither":                  {nil, nil, "/b", "no configuration of the filter deny"},
		"a resource of other type": {refusing, map[string]proto.Message{"deny": &networkrbacv3.RBAC{StatPrefix: "x"}}, "/b", "the configuration of filter deny is a type.googleapis.com/envoy.extensions.filters.network.rbac.v3.RBAC"},
	} {
		p, err := workload(t, nil, byDiscovery(test.byDefault), test.extensions)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Run(simulate.Request{Inbound: true, Path: test.path}); !strings.HasPrefix(got.String(), test.want) {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
	if _, err := workload(t, nil, byDiscovery(refusing), map[string]proto.Message{"deny": &networkrbacv3.RBAC{}}); err == nil {
		t.Error("a configuration that Envoy refuses is taken")
	}
}

// TestDecisions: the result tells what each filter says, and which policy refuses.
func TestDecisions(t *testing.T) {
	t.Parallel()
	watched := &httprbacv3.RBAC{ShadowRules: rules(rbacv3.RBAC_DENY, rbac.PermissionAny()), ShadowRulesStatPrefix: "x"}
	enforced := &httprbacv3.RBAC{Rules: rules(rbacv3.RBAC_DENY, rbac.PermissionPath(rbac.Prefix("/a")))}
	empty := &httprbacv3.RBAC{Rules: &rbacv3.RBAC{Action: rbacv3.RBAC_ALLOW}}
	filters := func(configs ...proto.Message) []*hcmv3.HttpFilter {
		var out []*hcmv3.HttpFilter
		for i, c := range configs {
			out = append(out, &hcmv3.HttpFilter{Name: string(rune('a' + i)), ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: message.Pack(c)}})
		}
		return out
	}
	p, err := workload(t, nil, filters(watched, enforced, empty), nil)
	if err != nil {
		t.Fatal(err)
	}
	first, second := p.Run(simulate.Request{Inbound: true, Path: "/a"}), p.Run(simulate.Request{Inbound: true, Path: "/b"})
	if len(first.Access) != 2 || !first.Access[0].Shadow || !first.Access[0].Refuses {
		t.Errorf("decisions %+v", first.Access)
	}
	by, ok := first.Refused()
	rule, hasRule := by.Rule()
	if !ok || !hasRule || by.Filter != "b" || rule.Namespace != "shop" || rule.Name != "web" || rule.Rule != 2 || by.Details() != "rbac_access_denied_matched_policy[ns[shop]-policy[web]-rule[2]]" {
		t.Errorf("refused by %+v: %s", by, by.Details())
	}
	if by, ok := second.Refused(); !ok || by.Filter != "c" || by.Details() != "rbac_access_denied_matched_policy[none]" {
		t.Errorf("refused by %+v", by)
	}
}

// TestRefusedConnection: a filter before HTTP or TCP closes the connection.
func TestRefusedConnection(t *testing.T) {
	t.Parallel()
	closes := []*listenerv3.Filter{{Name: "deny", ConfigType: &listenerv3.Filter_ConfigDiscovery{ConfigDiscovery: found(nil, &networkrbacv3.RBAC{})}}}
	extensions := map[string]proto.Message{"deny": &networkrbacv3.RBAC{StatPrefix: "tcp.", Rules: rules(rbacv3.RBAC_DENY, rbac.PermissionPort(81))}}
	for name, http := range map[string][]*hcmv3.HttpFilter{"TCP": nil, "HTTP": {}} {
		p, err := workload(t, closes, http, extensions)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Run(simulate.Request{Inbound: true, Port: 81}); !errors.Is(got.Err, simulate.ErrRefused) {
			t.Errorf("%s: port 81: %s", name, got)
		}
		if got := p.Run(simulate.Request{Inbound: true, Port: 80}); errors.Is(got.Err, simulate.ErrRefused) || len(got.Access) != 1 {
			t.Errorf("%s: port 80: %s", name, got)
		}
	}
}

// TestIdentityIsProved: an identity counts only where the proxy ends TLS and asks for a
// certificate.
func TestIdentityIsProved(t *testing.T) {
	t.Parallel()
	config := &httprbacv3.RBAC{Rules: &rbacv3.RBAC{Policies: map[string]*rbacv3.Policy{
		"mesh": rbac.Policy([]*rbac.Permission{rbac.PermissionAny()}, []*rbac.Principal{rbac.PrincipalName(rbac.Prefix("spiffe://"))}),
	}}}
	options := socket.DownstreamTLSOptions{TLSOptions: socket.TLSOptions{Certificates: []socket.SecretRef{{Name: "default"}}}}
	asks := options
	asks.Peer = &socket.PeerValidation{Roots: socket.SecretRef{Name: "ROOTCA"}}
	for name, test := range map[string]struct {
		transport *corev3.TransportSocket
		protocol  simulate.Protocol
		passes    bool
	}{
		"mutual TLS":               {socket.DownstreamTLS(asks), simulate.HTTPS, true},
		"TLS that asks for nobody": {socket.DownstreamTLS(options), simulate.HTTPS, false},
		"plaintext":                {nil, simulate.HTTP, false},
	} {
		p := simulated(t, envoy.Listener(envoy.ListenerOptions{
			Name: "virtualInbound", Host: "0.0.0.0", Port: 15006, TLSInspector: &envoy.Inspection{},
			FilterChains: []*listenerv3.FilterChain{envoy.FilterChain(envoy.FilterChainOptions{Transport: test.transport, Filters: []*listenerv3.Filter{
				envoy.HTTPConnectionManager(envoy.HTTPOptions{
					StatPrefix: "http", RouteConfig: envoy.RouteConfig(envoy.RouteConfigOptions{Name: "r"}),
					Filters: []*hcmv3.HttpFilter{{Name: "a", ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: message.Pack(config)}}, envoy.RouterFilter()},
				}),
			}})},
		}))
		got := p.Run(simulate.Request{Inbound: true, Protocol: test.protocol, Identity: "spiffe://td/ns/a/sa/b"})
		if _, refused := got.Refused(); refused == test.passes {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestUnknownRules: what the simulation does not know of RBAC is an error, never an answer.
func TestUnknownRules(t *testing.T) {
	t.Parallel()
	unknown := &rbac.Permission{Rule: &rbacv3.Permission_DestinationPortRange{}}
	p, err := workload(t, nil, []*hcmv3.HttpFilter{{Name: "a", ConfigType: &hcmv3.HttpFilter_TypedConfig{
		TypedConfig: message.Pack(&httprbacv3.RBAC{Rules: rules(rbacv3.RBAC_DENY, rbac.PermissionNot(unknown))}),
	}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Run(simulate.Request{Inbound: true}); got.Err == nil || !strings.Contains(got.Err.Error(), "simulation of the permission") || got.Status != 0 {
		t.Errorf("got %s", got)
	}
}
