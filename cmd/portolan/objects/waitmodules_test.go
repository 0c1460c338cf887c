package objects

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// TestWaitForModules: the change of a WasmPlugin is not taken before all servers have its module. A
// fetch that failed ends the waiting, unless the server that tells of it is behind. Modules of other
// plugins are no matter.
func TestWaitForModules(t *testing.T) {
	t.Parallel()
	path := func(name string) string {
		return config.Key{Kind: schema.WasmPlugin, Namespace: "shop", Name: name}.Path()
	}
	taken := progress.Distribution{Revision: 8, Published: 8, Count: status.Count{Accepted: 2}}
	with := func(behind []string, missing ...status.MissingModule) progress.Distribution {
		out := taken
		out.Behind, out.MissingModules = behind, missing
		return out
	}
	awaited := status.MissingModule{Plugin: path("checker"), Server: "cp-1:7/a"}
	failed := status.MissingModule{Plugin: path("checker"), Server: "cp-2:8/b", Fault: "http://x/c.wasm: it answers 404"}
	for name, c := range map[string]struct {
		answers  []progress.Distribution // the last one again and again
		code     int
		out, err []string
		asked    int64 // at least
	}{
		"it comes":            {answers: []progress.Distribution{with(nil, awaited), taken}, out: []string{"accepted 2"}, asked: 2},
		"it fails on one":     {answers: []progress.Distribution{with(nil, awaited), with(nil, awaited, failed)}, code: 2, out: []string{"modules missing 2", "no module  wasmplugin/shop/checker  server cp-2:8: http://x/c.wasm: it answers 404"}, err: []string{"wasmplugin/shop/checker on server cp-2:8: http://x/c.wasm: it answers 404", "portolan describe"}, asked: 2},
		"a former one failed": {answers: []progress.Distribution{with([]string{"cp-2:8/b"}, failed), taken}, out: []string{"accepted 2"}, asked: 2},
		"time is up":          {answers: []progress.Distribution{with(nil, awaited)}, code: 2, err: []string{"not all servers have the module of wasmplugin/shop/checker within 60ms"}, asked: 2},
		"that of another":     {answers: []progress.Distribution{with(nil, status.MissingModule{Plugin: path("other"), Fault: "no"})}, out: []string{"accepted 2"}, asked: 1},
	} {
		var asked atomic.Int64
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			i := min(int(asked.Add(1)), len(c.answers)) - 1
			_ = json.NewEncoder(w).Encode(admin.Propagation{Distribution: c.answers[i]})
		}))
		timeout := "30s"
		if name == "time is up" {
			timeout = "60ms"
		}
		got := line.Do(t, "", "wait", "wasmplugin/checker", "-n", "shop", "--server", server.URL, "--timeout", timeout)
		server.Close()
		if got.Code != c.code || asked.Load() < c.asked {
			t.Errorf("%s: asked %d times: %+v", name, asked.Load(), got)
		}
		expectWords(t, name, got.Out, c.out)
		expectWords(t, name, got.Err, c.err)
	}
}
