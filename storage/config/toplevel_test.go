package config_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/anypb"
	metav1alpha1 "istio.io/api/meta/v1alpha1"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/storage/config"
)

// chest is a spec whose fields stand at the top level.
type chest struct {
	Type  string            `json:"type,omitempty"`
	Data  map[string][]byte `json:"data,omitempty"`
	Words map[string]string `json:"words,omitempty"`
	Trees []branch          `json:"trees,omitempty"`
	Open  *bool             `json:"open,omitempty"`
}

type branch struct {
	Name     string   `json:"name,omitempty"`
	Children []branch `json:"children,omitempty"`
}

func (*chest) TopLevel() {}

var chestCodec = config.JSON[chest]()

func resolveChest(_, kind string) (config.Type, error) {
	return config.Type{GroupVersionKind: config.GroupVersionKind{Version: "v1", Kind: kind}, Codec: chestCodec}, nil
}

// resolveAny knows the kinds of the mesh, and Chest.
func resolveAny(apiVersion, kind string) (config.Type, error) {
	if apiVersion == "v1" && kind == "Chest" {
		return resolveChest(apiVersion, kind)
	}
	return resolve(apiVersion, kind)
}

func TestASpecAtTheTopLevelIsReadStrictly(t *testing.T) {
	t.Parallel()
	const head = `{"apiVersion":"v1","kind":"Chest","metadata":{"name":"a"}`
	deep := strings.Repeat(`{"children":[`, 60) + strings.Repeat(`]}`, 60)
	for text, want := range map[string][]string{
		head + `,"type":"x","data":{"a":"AAEC"},"words":{"b":"c"},"trees":[{"name":"d"}],"open":true,"status":{}}`: nil,
		head + `}`:                         nil,
		head + `,"type":null,"data":null}`: nil,
		head + `,"spec":{"type":"x"},"dta":{},"Words":{},"metdata":{},"trees":[{"nme":1}]}`: {
			"chest/a: Words: unknown field: did you mean words?", "chest/a: dta: unknown field: did you mean data?",
			"chest/a: metdata: unknown field: did you mean metadata?", "chest/a: spec: unknown field",
			"chest/a: trees[0].nme: unknown field: did you mean name?",
		},
		head + `,"data":{"a":"?","b":5},"words":{"c":1},"open":"yes","trees":{}}`: {
			`chest/a: data[a]: must be a string in base64, is "?"`, "chest/a: data[b]: must be a string in base64, is 5",
			`chest/a: open: must be true or false, is "yes"`, "chest/a: trees: must be a list, is {}",
			"chest/a: words[c]: must be a string, is 1: put it in quotes",
		},
		head + `,"data":{"a":"AA==","a":"AA=="}}`: {"chest/a: data.a: is set twice"},
		head + `,"trees":[` + deep + `]}`:         {"chest/a: trees[0].children[0].children[0].children[0]...: is nested 122 deep, and 100 is the most"},
	} {
		_, err := config.FromJSON([]byte(text), resolveChest)
		if d := cmp.Diff(want, errorLines(t, err)); d != "" {
			t.Errorf("%s (-want +got):\n%s", text, d)
		}
	}
	_, err := config.Decode("f.yaml", []byte("apiVersion: v1\nkind: Chest\nmetadata: {name: a}\ntype: 5\nkinds: x\n"), resolveChest)
	if d := cmp.Diff([]string{
		"f.yaml: document 1 (line 1): chest/a: kinds: unknown field: did you mean kind?",
		"f.yaml: document 1 (line 1): chest/a: type: must be a string, is 5: put it in quotes",
	}, errorLines(t, err)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestASpecAtTheTopLevelIsWrittenBesideMetadata(t *testing.T) {
	t.Parallel()
	c := &config.Config{
		Meta:   config.Meta{GroupVersionKind: config.GroupVersionKind{Version: "v1", Kind: "Chest"}, Name: "a"},
		Spec:   &chest{Type: "<x>", Data: map[string][]byte{"b": {0}}},
		Status: &metav1alpha1.IstioStatus{ObservedGeneration: 3},
	}
	text, err := config.ToJSON(c, "")
	if want := `{"apiVersion":"v1","kind":"Chest","metadata":{"name":"a"},"status":{"observedGeneration":3},"type":"<x>","data":{"b":"AA=="}}`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	text, err = config.ToYAML(c)
	if want := "apiVersion: v1\ndata:\n  b: AA==\nkind: Chest\nmetadata:\n  name: a\nstatus:\n  observedGeneration: 3\ntype: <x>\n"; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
	text, err = config.ToJSON(&config.Config{Meta: c.Meta, Spec: &chest{}}, "")
	if want := `{"apiVersion":"v1","kind":"Chest","metadata":{"name":"a"}}`; err != nil || string(text) != want {
		t.Errorf("%s, %v, want %s", text, err, want)
	}
}

// TestContent: the content is the fields below spec, or beside metadata.
func TestContent(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"apiVersion":"v1","kind":"A","metadata":{},"status":{},"spec":{"a":1},"b":2}`: `{"a":1}`,
		`{"apiVersion":"v1","kind":"A","metadata":{},"status":{},"a":1,"b":{"c":2}}`:    `{"a":1,"b":{"c":2}}`,
		`{"apiVersion":"v1","kind":"A","metadata":{}}`:                                  `{}`,
		`{"spec":null}`: `null`,
	} {
		var document map[string]any
		if err := json.Unmarshal([]byte(text), &document); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(config.Content(document)); err != nil || string(got) != want {
			t.Errorf("of %s it is %s, %v, want %s", text, got, err, want)
		}
	}
}

// clash has a field that means something else in a document.
type clash struct {
	Kind string `json:"Kind,omitempty"`
}

func (*clash) TopLevel() {}

func TestAFieldOfDocumentsIsNoFieldOfASpec(t *testing.T) {
	t.Parallel()
	defer func() {
		if said, _ := recover().(string); !strings.Contains(said, "clash has a field Kind at the top level") {
			t.Errorf("it panics with %q", said)
		}
	}()
	config.JSON[clash]()
}

// TestAKeyThatWouldMergeRoundTrips: also among strings that look like it.
func TestAKeyThatWouldMergeRoundTrips(t *testing.T) {
	t.Parallel()
	for _, words := range []map[string]string{{"<<": ""}, {"<<": "<<", "a": "x\n<<: y\n"}, {"a": `"<<":`}, {"a<<": "<<"}} {
		c := &config.Config{Meta: config.Meta{GroupVersionKind: config.GroupVersionKind{Version: "v1", Kind: "Chest"}, Name: "a", Namespace: "b"}, Spec: &chest{Words: words}}
		asYAML, err := config.ToYAML(c)
		if err != nil {
			t.Fatal(err)
		}
		documents, err := config.Decode("f.yaml", asYAML, resolveChest)
		if err != nil || len(documents) != 1 || !config.SameContent(c, documents[0].Config) {
			t.Errorf("%s: %v", asYAML, err)
		}
	}
}

// TestAnySpecAtTheTopLevelRoundTrips: as JSON, as YAML and as a stored value, and equal
// objects have equal bytes.
func TestAnySpecAtTheTopLevelRoundTrips(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		spec := &chest{
			Type:  text.Draw(t, "type"),
			Data:  rapid.MapOfN(text, rapid.SliceOfN(rapid.Byte(), 1, 8), 0, 3).Draw(t, "data"),
			Words: rapid.MapOfN(text, text, 0, 3).Draw(t, "words"),
		}
		if rapid.Bool().Draw(t, "open") {
			spec.Open = new(bool)
		}
		c := &config.Config{Meta: config.Meta{GroupVersionKind: config.GroupVersionKind{Version: "v1", Kind: "Chest"}, Name: "a", Namespace: "b"}, Spec: spec}
		if err := chestCodec.Check(spec); err != nil {
			t.Fatal(err)
		}
		first, err := config.ToJSON(c, "")
		if err != nil {
			t.Fatal(err)
		}
		if again, err := config.ToJSON(c.Clone(), ""); err != nil || string(again) != string(first) {
			t.Fatalf("%s is written again as %s, %v", first, again, err)
		}
		fromJSON, err := config.FromJSON(first, resolveChest)
		if err != nil || !config.SameContent(c, fromJSON) {
			t.Fatalf("JSON: %s: %v", first, err)
		}
		asYAML, err := config.ToYAML(c)
		if err != nil {
			t.Fatal(err)
		}
		documents, err := config.Decode("f.yaml", asYAML, resolveChest)
		if err != nil || len(documents) != 1 || !config.SameContent(c, documents[0].Config) {
			t.Fatalf("YAML: %s: %v", asYAML, err)
		}
		stored, err := config.MarshalSpec(spec, nil)
		if err != nil {
			t.Fatal(err)
		}
		read, err := chestCodec.Unmarshal(&anypb.Any{TypeUrl: config.SpecType(spec), Value: stored})
		if err != nil || !config.SameSpec(read, spec) {
			t.Fatalf("stored: %s: %v", stored, err)
		}
	})
}

// TestYAMLOfOddCharacters writes strings with characters that a reader of YAML takes for
// the end of a line, or for none.
func TestYAMLOfOddCharacters(t *testing.T) {
	t.Parallel()
	for _, odd := range []string{"\u0085", "\u2028", "\u2029", "\u007f", "\u009f", "\ufeff", "a\u0085b"} {
		c := &config.Config{
			Meta: config.Meta{GroupVersionKind: config.GroupVersionKind{Version: "v1", Kind: "Chest"}, Name: "a", Namespace: "b"},
			Spec: &chest{Type: odd, Words: map[string]string{odd: odd}},
		}
		text, err := config.ToYAML(c)
		if err != nil {
			t.Fatalf("%q: %v", odd, err)
		}
		documents, err := config.Decode("f.yaml", text, resolveChest)
		if err != nil || len(documents) != 1 || !config.SameContent(c, documents[0].Config) {
			t.Errorf("%q: %s: %v", odd, text, err)
		}
	}
}
