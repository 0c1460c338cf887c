package virtualhost_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate/virtualhost"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// TestGolden makes the virtual hosts of each mesh in testdata, *.in.yaml, for a sidecar
// and for a gateway with the label istio: gateway. They are those in *.sidecar.yaml and
// *.router.yaml.
func TestGolden(t *testing.T) {
	t.Parallel()
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
			w := xdstest.NewWorld(t, string(objects))
			for _, n := range []xdstest.Node{
				{Labels: map[string]string{"app": "client"}},
				{Type: discovery.Router, Labels: map[string]string{"istio": "gateway"}},
			} {
				var out []proto.Message
				for _, r := range w.Build(n, virtualhost.Generator{}) {
					message, err := r.Body.UnmarshalNew()
					if err != nil {
						t.Fatal(err)
					}
					out = append(out, message)
				}
				xdstest.Golden(t, name+"."+string(n.Proxy(t).Type)+".yaml", out...)
			}
		})
	}
}
