package xdstest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"gotest.tools/v3/golden"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/xds/generate"
)

// Golden compares messages, as YAML documents, with a file of testdata. With -update the
// test writes the file.
func Golden(tb testing.TB, file string, messages ...proto.Message) {
	tb.Helper()
	documents := make([]string, len(messages))
	for i, m := range messages {
		asJSON, err := protojson.Marshal(m)
		if err != nil {
			tb.Fatal(err)
		}
		asYAML, err := yaml.JSONToYAML(asJSON)
		if err != nil {
			tb.Fatal(err)
		}
		documents[i] = string(asYAML)
	}
	golden.Assert(tb, strings.Join(documents, "---\n"), file)
}

// GoldenMeshes runs a subtest for each mesh in testdata, *.in.yaml, by its name. Comment lines
// of the file set more: "mesh: ..." is the mesh configuration, "labels: ..." and "locality:
// ..." describe the node.
func GoldenMeshes(t *testing.T, run func(t *testing.T, name string, w *World, n Node)) {
	t.Helper()
	inputs, err := filepath.Glob(filepath.Join("testdata", "*.in.yaml"))
	if err != nil || len(inputs) == 0 {
		t.Fatal(inputs, err)
	}
	for _, input := range inputs {
		name := strings.TrimSuffix(filepath.Base(input), ".in.yaml")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			w, n := NewWorld(t, string(objects)), Node{}
			for line := range strings.Lines(string(objects)) {
				if config, ok := strings.CutPrefix(line, "# mesh: "); ok {
					w.SetMesh(config)
				}
				if labels, ok := strings.CutPrefix(line, "# labels: "); ok {
					if err := yaml.Unmarshal([]byte(labels), &n.Labels); err != nil {
						t.Fatal(err)
					}
				}
				if locality, ok := strings.CutPrefix(line, "# locality: "); ok {
					n.Locality = strings.TrimSpace(locality)
				}
			}
			run(t, name, w, n)
		})
	}
}

// Golden builds the resources of a node whose names begin with prefix, and compares them with a
// file of testdata.
func (w *World) Golden(tb testing.TB, file, prefix string, n Node, generators ...generate.Generator) {
	tb.Helper()
	var out []proto.Message
	for _, r := range w.Build(n, generators...) {
		if !strings.HasPrefix(r.Name, prefix) {
			continue
		}
		message, err := r.Body.UnmarshalNew()
		if err != nil {
			tb.Fatal(err)
		}
		out = append(out, message)
	}
	Golden(tb, file, out...)
}
