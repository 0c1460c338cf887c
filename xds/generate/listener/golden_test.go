package listener_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGolden makes the outbound listeners of each mesh in testdata, *.in.yaml, which are
// those in *.out.yaml. A line "# mesh: ..." is the mesh configuration; a file whose name
// begins with captured is for a sidecar that captures traffic.
func TestGolden(t *testing.T) {
	t.Parallel()
	inputs, err := filepath.Glob(filepath.Join("testdata", "*.in.yaml"))
	if err != nil || len(inputs) == 0 {
		t.Fatal(inputs, err)
	}
	for _, input := range inputs {
		t.Run(filepath.Base(input), func(t *testing.T) {
			t.Parallel()
			objects, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			w := xdstest.NewWorld(t, string(objects))
			if _, rest, ok := strings.Cut(string(objects), "# mesh: "); ok {
				config, _, _ := strings.Cut(rest, "\n")
				w.SetMesh(config)
			}
			var node xdstest.Node
			if strings.HasPrefix(filepath.Base(input), "captured") {
				node.Interception = discovery.InterceptionRedirect
			}
			var out []string
			for _, r := range w.Build(node, listener.Generator{}) {
				message, err := r.Body.UnmarshalNew()
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, asYAML(t, message))
			}
			compare(t, strings.TrimSuffix(input, ".in.yaml")+".out.yaml", strings.Join(out, "---\n"))
		})
	}
}

func asYAML(t *testing.T, m proto.Message) string {
	t.Helper()
	asJSON, err := protojson.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out, err := yaml.JSONToYAML(asJSON)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func compare(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}
