package envoytest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"
)

// Look finds what is at a path in a message's JSON, as text: a dot separates fields and indexes, *
// stands for all elements, and what is found is joined with commas. A message shows its fields.
func Look(t testing.TB, m proto.Message, path string) string {
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
		return strings.Join(slices.Sorted(maps.Keys(v)), ",")
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, show(one))
		}
		return strings.Join(all, ",")
	}
	return fmt.Sprint(v)
}
