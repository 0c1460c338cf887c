package proxies

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/clitest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/explain"
)

// TestExamplesOfProxiesRun: the examples in the help of these commands run. Those that go on are left
// out.
func TestExamplesOfProxiesRun(t *testing.T) {
	file := clitest.Write(t, map[string]string{"new.yaml": clitest.Entry("x", "")})
	t.Chdir(file)
	list := someProxies()
	list.APIs = nil
	answer := func(r *http.Request) any {
		switch r.URL.Path {
		case admin.ProxyLogPath:
			return someLog()
		case admin.DisconnectPath:
			return admin.Disconnected{Node: vm17, Streams: 1}
		case explain.ResolvePath:
			return explain.Resolution{Name: "reviews", Reason: "no service of the mesh has this host"}
		}
		return list
	}
	root := cli.NewRootCommand(&cli.Environment{Schemas: schema.Pilot()}, cli.Program(line))
	for _, path := range []string{"proxy log", "proxy top", "proxy disconnect", "dns resolve", "proxy status"} {
		c, _, err := root.Find(strings.Fields(path))
		if err != nil {
			t.Fatal(err)
		}
		ran := 0
		for text := range strings.Lines(c.Example) {
			args := strings.Fields(strings.ReplaceAll(text, `"to another server"`, "why"))[1:]
			if slices.Contains(args, "-w") || path == "proxy log" && slices.Contains(args, "-f") {
				continue
			}
			if o, err := serving(t, answer, args...); err != nil || o.Out == "" && path != "proxy log" {
				t.Errorf("%s: %v: %+v", text, err, o)
			}
			ran++
		}
		if ran == 0 {
			t.Errorf("%s: no example ran", path)
		}
	}
}
