package patch_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	bootstrapv3 "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/xds/envoy/patch"
)

// base is a message that patches are tried on.
type base struct {
	empty func() proto.Message
	in    networking.EnvoyFilter_PatchContext
	at    patch.Place
}

const (
	inbound  = networking.EnvoyFilter_SIDECAR_INBOUND
	outbound = networking.EnvoyFilter_SIDECAR_OUTBOUND
	gateway  = networking.EnvoyFilter_GATEWAY
)

func aCluster() proto.Message  { return &clusterv3.Cluster{} }
func aListener() proto.Message { return &listenerv3.Listener{} }
func someRoutes() proto.Message {
	return &routev3.RouteConfiguration{}
}

// bases are the files in testdata/base.
var bases = map[string]base{
	"cluster":        {empty: aCluster, in: outbound},
	"choosing":       {empty: aCluster, in: outbound},
	"inboundcluster": {empty: aCluster, in: inbound, at: patch.Place{Hosts: "web.example.com www.example.com"}},
	"outbound":       {empty: aListener, in: outbound},
	"tcp":            {empty: aListener, in: outbound},
	"socket":         {empty: aListener, in: outbound},
	"inbound":        {empty: aListener, in: inbound},
	"gateway":        {empty: aListener, in: gateway},
	"routes":         {empty: someRoutes, in: outbound},
	"gatewayroutes":  {empty: someRoutes, in: gateway, at: patch.Place{Ports: "443 8443"}},
	"vhdsroutes":     {empty: someRoutes, in: outbound},
	"virtualhost":    {empty: func() proto.Message { return &routev3.VirtualHost{} }, in: outbound, at: patch.Place{Routes: "80"}},
	"bootstrap":      {empty: func() proto.Message { return &bootstrapv3.Bootstrap{} }},
}

func (b base) place() patch.Place {
	at := b.at
	at.Context = b.in
	return at
}

// load reads testdata/base/<name>.yaml.
func load(t testing.TB, name string) (base, proto.Message) {
	t.Helper()
	b, ok := bases[name]
	if !ok {
		t.Fatalf("there is no base %q", name)
	}
	m := b.empty()
	readYAML(t, filepath.Join("testdata", "base", name+".yaml"), m)
	return b, m
}

func readYAML(t testing.TB, file string, m proto.Message) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	fromYAML(t, file, text, m)
}

func fromYAML(t testing.TB, name string, text []byte, m proto.Message) {
	t.Helper()
	text, err := yaml.YAMLToJSON(text)
	if err == nil {
		err = protojson.Unmarshal(text, m)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// filterOf parses an EnvoyFilter shop/a with these patches, in YAML or JSON.
func filterOf(t testing.TB, patches string) *patch.Filter {
	t.Helper()
	return patch.Parse("shop", "a", time.Unix(1, 0), specOf(t, patches))
}

func specOf(t testing.TB, patches string) *networking.EnvoyFilter {
	t.Helper()
	spec := &networking.EnvoyFilter{}
	fromYAML(t, "the test's patches", []byte("configPatches:\n "+strings.ReplaceAll(patches, "\n", "\n ")), spec)
	return spec
}

// change applies patches to a message by its type. It returns nil for a removed one.
func change(m proto.Message, at patch.Place, patches []*patch.Patch) (proto.Message, []patch.Result) {
	var out proto.Message
	var results []patch.Result
	switch m := m.(type) {
	case *clusterv3.Cluster:
		out, results = patch.Cluster(m, at, patches)
	case *listenerv3.Listener:
		out, results = patch.Listener(m, at, patches)
	case *routev3.RouteConfiguration:
		out, results = patch.RouteConfiguration(m, at, patches)
	case *routev3.VirtualHost:
		out, results = patch.VirtualHost(m, at, patches)
	case *bootstrapv3.Bootstrap:
		out, results = patch.Bootstrap(m, patches)
	}
	if !out.ProtoReflect().IsValid() {
		return nil, results
	}
	return out, results
}

// look finds what is at a path in a message's JSON, as text: a dot separates fields and indexes, *
// stands for all elements, and what is found is joined with commas.
func look(t testing.TB, m proto.Message, path string) string {
	t.Helper()
	text, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := yaml.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	return find(v, strings.Split(path, "."))
}

func find(v any, path []string) string {
	if len(path) == 0 {
		return show(v)
	}
	switch v := v.(type) {
	case map[string]any:
		for n := len(path); n > 0; n-- { // names of maps have dots, too
			if member, ok := v[strings.Join(path[:n], ".")]; ok {
				return find(member, path[n:])
			}
		}
	case []any:
		if path[0] == "*" {
			var all []string
			for _, one := range v {
				all = append(all, find(one, path[1:]))
			}
			return strings.Join(all, ",")
		}
		if i, err := strconv.Atoi(path[0]); err == nil && i < len(v) {
			return find(v[i], path[1:])
		}
	}
	return ""
}

func show(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case map[string]any:
		var keys []string
		for key := range v {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		return strings.Join(keys, ",")
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, show(one))
		}
		return strings.Join(all, ",")
	}
	return fmt.Sprint(v)
}
