package patchtest

import (
	"embed"
	"encoding/json"
	"path"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	"sigs.k8s.io/yaml"
)

//go:embed shapes base short.yaml
var files embed.FS

// Shapes returns EnvoyFilters as users publish them, by name: those of shapes, which have several
// patches, and those of short.yaml, each of which is one patch.
func Shapes(t testing.TB) map[string]*networking.EnvoyFilter {
	t.Helper()
	out := map[string]*networking.EnvoyFilter{}
	add := func(name string, patches any) {
		text, err := json.Marshal(map[string]any{"configPatches": patches})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if out[name] != nil {
			t.Fatalf("there are two shapes %q", name)
		}
		out[name] = &networking.EnvoyFilter{}
		readYAML(t, name, text, out[name])
	}
	entries, err := files.ReadDir("shapes")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		named := map[string]json.RawMessage{}
		parse(t, path.Join("shapes", entry.Name()), &named)
		for name, patches := range named {
			add(name, patches)
		}
	}
	sections := map[string]map[string]short{}
	parse(t, "short.yaml", &sections)
	for section, named := range sections {
		for name, s := range named {
			add(section+": "+name, []any{s.patch(section)})
		}
	}
	return out
}

// parse reads a file of YAML.
func parse(t testing.TB, file string, into any) {
	t.Helper()
	text, err := files.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// readYAML reads a message in YAML.
func readYAML(t testing.TB, name string, text []byte, m proto.Message) {
	t.Helper()
	text, err := yaml.YAMLToJSON(text)
	if err == nil {
		err = protojson.Unmarshal(text, m)
	}
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// short is a patch of a section of short.yaml.
type short struct {
	// In is the context, At the filter beside which the filter is, and Of the type of its configuration.
	In, Op, At, Of string
	Match, Value   map[string]any
}

// kinds are the sections of filters.
var kinds = map[string]struct{ applyTo, types, at, op string }{
	"http":           {"HTTP_FILTER", "envoy.extensions.filters.http.", "router", "INSERT_BEFORE"},
	"manager":        {"NETWORK_FILTER", "envoy.extensions.filters.network.", "http_connection_manager", "MERGE"},
	"network":        {"NETWORK_FILTER", "envoy.extensions.filters.network.", "tcp_proxy", "INSERT_BEFORE"},
	"listenerfilter": {"LISTENER_FILTER", "envoy.extensions.filters.listener.", "", "INSERT_BEFORE"},
}

// patch returns the element of configPatches. A section without filters is a value of applyTo.
func (s short) patch(section string) map[string]any {
	kind, ofFilter := kinds[section]
	of, op, value := section, "MERGE", any(s.Value)
	match := map[string]any{}
	if s.Match != nil {
		match = s.Match
	}
	if s.In != "" {
		match["context"] = s.In
	}
	if ofFilter {
		of, op = kind.applyTo, kind.op
		at, group := kind.at, strings.TrimPrefix(kind.types, "envoy.extensions.")
		if s.At != "" {
			at = s.At
		}
		match["listener"] = matchOf(section, "envoy."+group+at, at != "")
		if section == "manager" {
			s.Of = "http_connection_manager.v3.HttpConnectionManager"
		}
		name, _, _ := strings.Cut(s.Of, ".")
		config := map[string]any{"@type": "type.googleapis.com/" + kind.types + s.Of}
		for field, v := range s.Value {
			config[field] = v
		}
		value = map[string]any{"name": "envoy." + group + name, "typed_config": config}
	}
	if s.Op != "" {
		op = s.Op
	}
	patch := map[string]any{"operation": op}
	if op != "REMOVE" {
		patch["value"] = value
	}
	return map[string]any{"applyTo": of, "match": match, "patch": patch}
}

// matchOf is the match for the place beside a filter.
func matchOf(section, filter string, named bool) map[string]any {
	asked := map[string]any{"name": filter}
	switch {
	case section == "http":
		asked = map[string]any{"name": "envoy.filters.network.http_connection_manager", "subFilter": asked}
	case section == "listenerfilter" && !named:
		return map[string]any{}
	case section == "listenerfilter":
		return map[string]any{"listenerFilter": filter}
	}
	return map[string]any{"filterChain": map[string]any{"filter": asked}}
}
