package config_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage/config"
)

// Base is embedded in tree, which has fields of every sort.
type Base struct {
	ID     string `json:"id,omitempty"`
	Hidden string `json:"-"`
}

type tree struct {
	Base     `json:",inline"`
	Name     string           `json:"name,omitempty"`
	Children []*tree          `json:"children,omitempty"`
	ByName   map[string]*tree `json:"byName,omitempty"`
	Size     [2]uint8         `json:"size,omitzero"`
	Any      any              `json:"any,omitempty"`
	Until    *metav1.Duration `json:"until,omitempty"`
	Untagged bool             `json:",omitempty"`
	private  int
}

func resolveTree(_, kind string) (config.Type, error) {
	return config.Type{GroupVersionKind: config.GroupVersionKind{Version: "v1", Kind: kind}, Codec: config.JSON[tree]()}, nil
}

func treeOf(spec string) string {
	return `{"apiVersion":"v1","kind":"Tree","metadata":{"name":"a"},"spec":` + spec + `}`
}

func TestAGoStructIsReadStrictly(t *testing.T) {
	t.Parallel()
	for spec, want := range map[string][]string{
		`{"id":"x","children":[{"id":"y"}],"byName":{"a":{"name":"z"}},"size":[1,2],"any":{"b":[1,null]},"until":"5s","Untagged":true}`: nil,
		`null`: nil,
		`[]`:   {"tree/a: spec: must be a mapping, is []: it has the fields Untagged, any, byName, children, id, name, size, until"},
		`{"ID":"x","Hidden":"x","private":1,"Base":{}}`: {
			"tree/a: spec.Base: unknown field", "tree/a: spec.Hidden: unknown field", "tree/a: spec.ID: unknown field: did you mean id?", "tree/a: spec.private: unknown field",
		},
		`{"id":null,"children":[{"name":1},{"children":[{"nam":1}]}],"byName":{"a":null,"b":{"size":{}}},"size":[1,-2],"until":"long","Untagged":"x"}`: {
			`tree/a: spec.Untagged: must be true or false, is "x"`,
			"tree/a: spec.byName[a]: is null: leave it out",
			"tree/a: spec.byName[b].size: must be a list, is {}",
			"tree/a: spec.children[0].name: must be a string, is 1: put it in quotes",
			"tree/a: spec.children[1].children[0].nam: unknown field: did you mean name?",
			"tree/a: spec.size[1]: must be a whole number from 0 (uint8), is -2",
			`tree/a: spec.until: is "long": time: invalid duration "long"`,
		},
	} {
		_, err := config.FromJSON([]byte(treeOf(spec)), resolveTree)
		if d := cmp.Diff(want, errorLines(t, err)); d != "" {
			t.Errorf("%s (-want +got):\n%s", spec, d)
		}
	}
	_, err := config.FromJSON([]byte(treeOf("{"+many(150)+"}")), resolveTree)
	if faults := errorLines(t, err); len(faults) != 101 || !strings.Contains(faults[100], "there are more faults") {
		t.Errorf("%d faults", len(faults))
	}
}

// many returns n unknown fields as members of a JSON object.
func many(n int) string {
	fields := make([]string, n)
	for i := range fields {
		fields[i] = `"x` + strings.Repeat("y", i) + `":1`
	}
	return strings.Join(fields, ",")
}

func TestAGoStructIsWrittenAsItIsRead(t *testing.T) {
	t.Parallel()
	c := &config.Config{
		Meta: config.Meta{GroupVersionKind: config.GroupVersionKind{Version: "v1", Kind: "Tree"}, Name: "a"},
		Spec: &tree{
			Base: Base{ID: "<x>"}, Children: []*tree{{Name: "b"}}, ByName: map[string]*tree{"z": {}, "a": {Name: "c"}},
			Any: []any{"d"}, Until: &metav1.Duration{Duration: time.Minute},
		},
	}
	text, err := config.ToJSON(c, "")
	want := treeOf(`{"id":"<x>","children":[{"name":"b"}],"byName":{"a":{"name":"c"},"z":{}},"any":["d"],"until":"1m0s"}`)
	if err != nil || string(text) != want {
		t.Fatalf("%s, %v, want %s", text, err, want)
	}
	again, err := config.FromJSON(text, resolveTree)
	if err != nil || !config.SameContent(c, again) {
		t.Errorf("%v, %v", again, err)
	}
	yaml, err := config.ToYAML(c)
	if err != nil {
		t.Fatal(err)
	}
	documents, err := config.Decode("f.yaml", yaml, resolveTree)
	if err != nil || !config.SameContent(c, documents[0].Config) {
		t.Errorf("%s: %v", yaml, err)
	}
}

func TestACloneOfAGoStructSharesNothing(t *testing.T) {
	t.Parallel()
	made := func() *config.Config {
		return &config.Config{Spec: &tree{
			Children: []*tree{{Name: "a"}}, ByName: map[string]*tree{"b": {Name: "b"}}, Any: map[string]any{"c": []any{"c"}},
			Until: &metav1.Duration{Duration: 1}, private: 1,
		}}
	}
	c := made()
	clone := c.Clone().Spec.(*tree)
	if clone.private != 1 || !config.SameSpec(c.Spec, clone) {
		t.Errorf("%+v", clone)
	}
	clone.Children[0].Name, clone.ByName["b"].Name, clone.Until.Duration = "x", "x", 2
	clone.Any.(map[string]any)["c"].([]any)[0] = "x"
	if !config.SameSpec(c.Spec, made().Spec) {
		t.Errorf("the original became %+v", c.Spec)
	}
	if config.SameSpec(c.Spec, clone) || config.SameSpec(c.Spec, nil) || config.SameSpec(c.Spec, &Base{}) || !config.SameSpec(nil, nil) {
		t.Error("other specs are the same")
	}
}
