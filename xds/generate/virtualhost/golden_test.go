package virtualhost_test

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protojson"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestGoldenHosts makes the virtual hosts of the objects in testdata/NAME.yaml, for a
// sidecar and for a gateway with the label istio: gateway, and compares them with
// testdata/NAME.golden.yaml. With -update it writes the golden files.
func TestGoldenHosts(t *testing.T) {
	t.Parallel()
	inputs, err := filepath.Glob(filepath.Join("testdata", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, input := range inputs {
		name, _ := strings.CutSuffix(input, ".yaml")
		if strings.HasSuffix(name, ".golden") {
			continue
		}
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			document, err := os.ReadFile(input)
			if err != nil {
				t.Fatal(err)
			}
			w := xdstest.NewWorld(t, string(document))
			var got bytes.Buffer
			for _, n := range []xdstest.Node{
				{Labels: map[string]string{"app": "client"}},
				{Type: discovery.Router, Labels: map[string]string{"istio": "gateway"}},
			} {
				for _, r := range w.Build(n, virtualhost.Generator{}) {
					message, err := r.Body.UnmarshalNew()
					if err != nil {
						t.Fatal(err)
					}
					asJSON, err := protojson.Marshal(message)
					if err != nil {
						t.Fatal(err)
					}
					asYAML, err := yaml.JSONToYAML(asJSON)
					if err != nil {
						t.Fatal(err)
					}
					got.WriteString("---\n# of a " + string(n.Proxy(t).Type) + "\n")
					got.Write(asYAML)
				}
			}
			golden := name + ".golden.yaml"
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", golden, diff)
			}
		})
	}
}
