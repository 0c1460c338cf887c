package listener_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/generate/listener"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

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
		name := strings.TrimSuffix(filepath.Base(input), ".in.yaml")
		t.Run(name, func(t *testing.T) {
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
			if strings.HasPrefix(name, "captured") {
				node.Interception = discovery.InterceptionRedirect
			}
			var out []proto.Message
			for _, r := range w.Build(node, listener.Generator{}) {
				message, err := r.Body.UnmarshalNew()
				if err != nil {
					t.Fatal(err)
				}
				out = append(out, message)
			}
			xdstest.Golden(t, name+".out.yaml", out...)
		})
	}
}
