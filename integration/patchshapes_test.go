package integration

import (
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/bootstrap"
	"github.com/portolan-mesh/portolan/xds/envoy/patch"
	"github.com/portolan-mesh/portolan/xds/envoy/patch/patchtest"
)

// TestSmokeEnvoyAcceptsPatched: the real Envoy accepts what EnvoyFilters of the shapes that users write
// make of listeners, clusters, routes and the bootstrap, and what they add. It is asked about all of them
// at once, and about each one only if it refuses that.
func TestSmokeEnvoyAcceptsPatched(t *testing.T) {
	t.Parallel()
	envoy := needEnvoy(t)
	// Envoy refuses these for what Go cannot know, and TestARefusedPatchIsBlamed shows what becomes of
	// such a patch.
	refused := map[string]string{
		"statistics of Istio":        "only Istio's Envoy has the filter",
		"tap":                        "Envoy crashes while it validates the filter without a server",
		"http: Wasm from a file":     "there is no such module",
		"http: injected credentials": "there is no such file",
	}
	all := patchtest.Shapes(t)
	var names []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if refused[name] == "" {
			names = append(names, name)
		}
	}
	out, err := validatePatched(t, envoy, all, names)
	if err == nil {
		return
	}
	t.Errorf("Envoy refuses all of them: %v\n%s", err, out)
	for _, name := range names {
		if out, err := validatePatched(t, envoy, all, []string{name}); err != nil {
			t.Errorf("Envoy refuses %s: %v\n%s", name, err, out)
		}
	}
}

// validatePatched has an Envoy check a bootstrap with all that shapes of these names change or add.
func validatePatched(t *testing.T, envoy string, all map[string]*networking.EnvoyFilter, names []string) (string, error) {
	t.Helper()
	b, err := bootstrap.Build(bootstrap.Options{Type: discovery.Sidecar, IPs: []string{"10.0.0.1"}, Name: "web-1", Namespace: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "zipkin"} { // of those that Envoy looks for at once
		b.StaticResources.Clusters = append(b.StaticResources.Clusters, &clusterv3.Cluster{Name: name})
	}
	bases := patchtest.Bases(t)
	for i, name := range names {
		patches := patch.Parse("shop", "shape", time.Time{}, all[name]).Patches
		into := &patchedBootstrap{b, fmt.Sprint(i)}
		for _, base := range bases {
			if out, results := patchtest.Apply(base.Message, base.Place, patches); len(results) > 0 && out != nil {
				into.add(t, base.Name, out)
			}
		}
		if b, _ = patch.Bootstrap(b, patches); b == nil {
			t.Fatalf("%s: no bootstrap is left", name)
		}
		into.Bootstrap = b
		for _, in := range []networking.EnvoyFilter_PatchContext{networking.EnvoyFilter_SIDECAR_OUTBOUND, networking.EnvoyFilter_GATEWAY} {
			clusters, _ := patch.AddedClusters(in, patches)
			for _, m := range clusters {
				into.add(t, in.String(), m)
			}
			listeners, _ := patch.AddedListeners(in, patches)
			for _, m := range listeners {
				into.add(t, in.String(), m)
			}
		}
		hosts, _ := patch.AddedVirtualHosts(patch.Place{Context: networking.EnvoyFilter_GATEWAY, Routes: "https.443.https.edge.shop"}, patches)
		for _, m := range hosts {
			into.add(t, "added", m)
		}
		extensions, _ := patch.Extensions(patches)
		for _, m := range extensions {
			into.add(t, m.GetName(), &hcmv3.HttpFilter{Name: m.GetName(), ConfigType: &hcmv3.HttpFilter_TypedConfig{TypedConfig: m.GetTypedConfig()}})
		}
	}
	document, err := bootstrap.JSON(b)
	if err != nil {
		t.Fatal(err)
	}
	config := write(t, "bootstrap.json", string(document))
	out, err := exec.CommandContext(t.Context(), envoy, "--mode", "validate", "--log-level", "error", "-c", config).CombinedOutput()
	return string(out), err
}

// patchedBootstrap is a bootstrap that takes messages under names of their own.
type patchedBootstrap struct {
	*bootstrapv3.Bootstrap
	suffix string
}

// add puts a message into the bootstrap: routes and filters within a listener.
func (b *patchedBootstrap) add(t *testing.T, name string, m proto.Message) {
	t.Helper()
	name = strings.Join([]string{name, b.suffix}, "-")
	switch m := proto.Clone(m).(type) {
	case *clusterv3.Cluster:
		m.Name += "-" + name
		if m.LoadAssignment != nil {
			m.LoadAssignment.ClusterName = m.Name
		}
		b.StaticResources.Clusters = append(b.StaticResources.Clusters, m)
	case *listenerv3.Listener:
		m.Name += "-" + name
		b.take(m)
	case *routev3.VirtualHost:
		b.add(t, "host", &routev3.RouteConfiguration{Name: "host", VirtualHosts: []*routev3.VirtualHost{m}})
	case *routev3.RouteConfiguration:
		m.Vhds, m.ValidateClusters = nil, wrapperspb.Bool(false) // as routes that come over ADS
		b.listener(t, name, &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: m}})
	case *hcmv3.HttpFilter:
		b.listener(t, name, &hcmv3.HttpConnectionManager{RouteSpecifier: &hcmv3.HttpConnectionManager_RouteConfig{RouteConfig: &routev3.RouteConfiguration{}}, HttpFilters: []*hcmv3.HttpFilter{m}})
	}
}

// listener adds a listener with a connection manager, whose last filter is the router.
func (b *patchedBootstrap) listener(t *testing.T, name string, manager *hcmv3.HttpConnectionManager) {
	t.Helper()
	router := &hcmv3.HttpFilter{}
	if err := protojson.Unmarshal([]byte(`{"name": "envoy.filters.http.router", "typedConfig": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"}}`), router); err != nil {
		t.Fatal(err)
	}
	manager.StatPrefix, manager.HttpFilters = name, append(manager.HttpFilters, router)
	packed, err := anypb.New(manager)
	if err != nil {
		t.Fatal(err)
	}
	l := &listenerv3.Listener{}
	if err := protojson.Unmarshal([]byte(`{"filterChains": [{"filters": [{"name": "manager"}]}]}`), l); err != nil {
		t.Fatal(err)
	}
	l.Name = name
	l.FilterChains[0].Filters[0].ConfigType = &listenerv3.Filter_TypedConfig{TypedConfig: packed}
	b.take(l)
}

// take adds a listener, at an address of its own.
func (b *patchedBootstrap) take(l *listenerv3.Listener) {
	l.Address = &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
		Address: "127.0.0.1", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: uint32(10000 + len(b.StaticResources.Listeners))},
	}}}
	b.StaticResources.Listeners = append(b.StaticResources.Listeners, l)
}
