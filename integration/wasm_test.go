package integration

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// moduleServer serves the modules of WasmPlugins, by path.
type moduleServer struct {
	*httptest.Server
	mu      sync.Mutex // guards what follows
	modules map[string][]byte
	held    map[string]chan struct{} // by path: what is served once the channel is closed
}

func newModuleServer(t testing.TB) *moduleServer {
	s := &moduleServer{modules: map[string][]byte{}, held: map[string]chan struct{}{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		held := s.held[r.URL.Path]
		s.mu.Unlock()
		if held != nil {
			select {
			case <-held:
			case <-r.Context().Done():
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if content, there := s.modules[r.URL.Path]; there {
			_, _ = w.Write(content)
		} else {
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *moduleServer) put(path string, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.modules[path] = content
}

// hold is put for what is served once the result is called.
func (s *moduleServer) hold(path string, content []byte) (release func()) {
	s.put(path, content)
	s.mu.Lock()
	defer s.mu.Unlock()
	held := make(chan struct{})
	s.held[path] = held
	return func() { close(held) }
}

// tinyModule is a plugin that adds its configuration to responses as the header x-wasm. On bytes, it
// passes those of the client on in upper case. tiny.wat beside it is its source.
func tinyModule(t testing.TB) []byte {
	t.Helper()
	content, err := os.ReadFile("testdata/wasm/tiny.wasm")
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// awaitWasm waits until requests are answered with a status, and by plugins with some configurations,
// the last of the chain first.
func awaitWasm(t testing.TB, what string, q request, status int, configurations ...string) {
	t.Helper()
	client := clientOf(t)
	eventually(t, what, func() error {
		got, err := do(t.Context(), client, q)
		if err == nil && (got.status != status || !slices.Equal(got.header.Values("X-Wasm"), configurations)) {
			err = fmt.Errorf("%d, %q", got.status, got.header.Values("X-Wasm"))
		}
		return err
	})
}

// awaitSaid waits until describe of a WasmPlugin says some words.
func (s *server) awaitSaid(name string, words ...string) {
	s.t.Helper()
	eventually(s.t, "describe wasmplugin "+name, func() error {
		said := s.must("", "describe", "wasmplugin", name, "-n", "shop")
		for _, word := range words {
			if !strings.Contains(said, word) {
				return fmt.Errorf("it does not say %q:\n%s", word, said)
			}
		}
		return nil
	})
}

// explainsPlugin has explain say the outcome of a request at the gateway, and some words of the plugin;
// empty words are that it runs as it is written.
func (s *server) explainsPlugin(q request, outcome string, words ...string) {
	s.t.Helper()
	e, err := s.explain("edge", fmt.Sprintf("%s:%d", q.host, q.port), request{path: "/"})
	said := strings.Join(e.Plugins, "; ")
	if err != nil || e.Outcome != outcome || words[0] == "" && said != "" {
		s.t.Errorf("explain: %v %s %q, %v: want %s", e.Outcome, e.Reason, said, err, outcome)
	}
	for _, w := range words {
		if !strings.Contains(said, w) {
			s.t.Errorf("explain says %q, want %q", said, w)
		}
	}
}

// TestAddWasmPage applies the objects of docs/tasks/add-wasm.md, and sees in requests what the plugins
// do: from a file and a web server, in the order of their phases, as long as a module is missing, and
// when the proxy rejects one.
func TestAddWasmPage(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		web, module := newModuleServer(t), tinyModule(t)
		other := append(slices.Clip(module), 0, 2, 1, 'x') // with a custom section: plugins of one module share a VM
		sum := fmt.Sprintf("%x", sha256.Sum256(other))
		file := filepath.Join(t.TempDir(), "plugin.wasm")
		if err := os.WriteFile(file, module, 0o644); err != nil { //nolint:gosec // Envoy may run as another user
			t.Fatal(err)
		}
		here := strings.NewReplacer("/etc/envoy/plugin.wasm", file, "http://10.0.0.40:8000", web.URL, "ec757060a4717f079363f6d1c96e04a83793174806fc5db3a230e6ab83c28fbb", sum)
		objects := pageObjects(t, "add-wasm.md", 3, here)
		greeter, checker, network := objects[0], objects[1], objects[2]
		s, edge, q := startPatched(t, v)

		s.apply(greeter)
		awaitWasm(t, "a plugin from a file", q, 200, `{"greeting":"hello"}`)
		listeners := edge.listenersModified()
		s.apply(strings.Replace(greeter, "greeting: hello", "greeting: bye", 1))
		awaitWasm(t, "another configuration", q, 200, `{"greeting":"bye"}`)
		expectEqual(t, "changed listeners", edge.listenersModified(), listeners)

		s.apply(checker)
		awaitWasm(t, "FAIL_CLOSE, and the module is not there", q, 403)
		s.awaitSaid("checker", web.URL+"/checker.wasm: it answers 404", "PTL0481")
		s.apply(strings.Replace(checker, "phase:", "failStrategy: FAIL_OPEN\n  phase:", 1))
		awaitWasm(t, "FAIL_OPEN, and the module is not there", q, 200, `{"greeting":"bye"}`)
		s.apply(checker)
		awaitWasm(t, "FAIL_CLOSE again", q, 403)
		web.put("/checker.wasm", other)
		awaitWasm(t, "the module is there: AUTHN is the first in the chain", q, 200, `{"greeting":"bye"}`, `{"realm":"shop"}`)

		bad := []byte("this is no module")
		web.put("/bad.wasm", bad)
		broken := strings.NewReplacer("/checker.wasm", "/bad.wasm", sum, fmt.Sprintf("%x", sha256.Sum256(bad)), "realm: shop", "realm: bad").Replace(checker)
		s.apply(broken)
		s.awaitSaid("checker", "edge", "Unable to create Wasm plugin")
		awaitWasm(t, "a rejected module: the former plugin goes on", q, 200, `{"greeting":"bye"}`, `{"realm":"shop"}`)
		gone := strings.Replace(checker, "/checker.wasm", "/gone.wasm", 1)
		gone = strings.NewReplacer(sum, strings.Repeat("a", 64), "realm: shop", "realm: gone").Replace(gone)
		s.apply(gone)
		s.awaitSaid("checker", "/gone.wasm: it answers 404", "go on with the plugin as it was before")
		s.apply(strings.Replace(checker, "realm: shop", "realm: city", 1))
		awaitWasm(t, "the sound module again", q, 200, `{"greeting":"bye"}`, `{"realm":"city"}`)

		s.apply(network)
		q.path = "/lower"
		client := clientOf(t)
		eventually(t, "a plugin of bytes", func() error {
			got, err := do(t.Context(), client, q)
			if err == nil && got.echo.Path != "/LOWER" {
				err = fmt.Errorf("%s %q", got, got.echo.Path)
			}
			return err
		})
		s.remove(greeter, checker, network)
		awaitWasm(t, "without plugins", q, 200)
	})
}

// TestWaitForAModule: apply --wait of a WasmPlugin ends when the module was sent and the proxies took or
// refused it, or when it could not be fetched. Words and exit codes say which.
func TestWaitForAModule(t *testing.T) {
	t.Parallel()
	s, _, q := startPatched(t, protocol.Delta)
	web, module := newModuleServer(t), tinyModule(t)
	plugin := func(path string, of []byte) string {
		return fmt.Sprintf("apiVersion: extensions.istio.io/v1alpha1\nkind: WasmPlugin\nmetadata: {name: checker, namespace: shop}\nspec: {selector: {matchLabels: {app: edge}}, url: %q, sha256: %x, pluginConfig: {of: %q}}\n",
			web.URL+path, sha256.Sum256(of), path)
	}
	absent := plugin("/none.wasm", module)
	expectOutcome(t, "a module that is not there", s.applyWait([]string{absent}), 2, "modules missing 1", "no module  wasmplugin/shop/checker", "/none.wasm: it answers 404")
	awaitWasm(t, "FAIL_CLOSE", q, 403)
	if out := s.applyWait([]string{absent}); out.code != 2 || !strings.Contains(out.stderr, "it answers 404") {
		t.Errorf("the same again: %+v", out)
	}
	for i, path := range []string{"/first.wasm", "/second.wasm"} { // the second while the first goes on
		content := append(slices.Clip(module), 0, 2, 1, byte(i))
		release, done := web.hold(path, content), make(chan outcome, 1)
		go func() { done <- s.applyWait([]string{plugin(path, content)}) }()
		s.awaitSaid("checker", "is not fetched by the leading server yet")
		if out := s.try("", "wait", "wasmplugin/checker", "-n", "shop", "--timeout", "50ms"); out.code != 2 || !strings.Contains(out.stderr, "not all servers have the module of wasmplugin/shop/checker within 50ms") {
			t.Errorf("wait while %s is fetched: %+v", path, out)
		}
		select {
		case out := <-done:
			t.Fatalf("apply --wait ended before %s was there: %+v", path, out)
		default:
		}
		release()
		expectOutcome(t, path, <-done, 0, "accepted 1")
		if got := send(t, q); got.status != 200 || got.header.Get("X-Wasm") != fmt.Sprintf(`{"of":%q}`, path) {
			t.Errorf("after apply --wait of %s: %s %q", path, got, got.header.Get("X-Wasm"))
		}
	}
	bad := []byte("this is no module")
	web.put("/bad.wasm", bad)
	s.explainsPlugin(q, "Forwarded", "")
	expectOutcome(t, "a module that the proxy refuses", s.applyWait([]string{plugin("/bad.wasm", bad)}), 2, "rejected 1", "Unable to create Wasm plugin")
	s.explainsPlugin(q, "Forwarded", "wasmplugin/shop/checker was refused by the proxy", "goes on with it as it was before")
	s.remove(plugin("/bad.wasm", bad))
	awaitWasm(t, "without plugins", q, 200)
	file := strings.NewReplacer(web.URL+"/bad.wasm", "file:///nowhere/none.wasm", fmt.Sprintf("sha256: %x, ", sha256.Sum256(bad)), "").Replace(plugin("/bad.wasm", bad))
	expectOutcome(t, "a file that is not there", s.applyWait([]string{file}), 2, "rejected 1", "/nowhere/none.wasm")
	awaitWasm(t, "FAIL_CLOSE without the file", q, 403)
	s.explainsPlugin(q, "Fails", "wasmplugin/shop/checker was refused by the proxy", "/nowhere/none.wasm", "refuses all requests")
	expectOutcome(t, "FAIL_OPEN without the file", s.applyWait([]string{strings.Replace(file, "spec: {", "spec: {failStrategy: FAIL_OPEN, ", 1)}), 2, "rejected 1")
	awaitWasm(t, "FAIL_OPEN without the file", q, 200)
	s.explainsPlugin(q, "Forwarded", "wasmplugin/shop/checker was refused by the proxy", "requests pass without it")
	absent = strings.Replace(plugin("/gone.wasm", bad[1:]), "app: edge", "app: nobody", 1)
	expectOutcome(t, "for nobody, without its module", s.applyWait([]string{absent}), 2, "no module")
	web.put("/gone.wasm", bad[1:])
	eventually(t, "for nobody, with its module", func() error {
		if out := s.applyWait([]string{absent}); out.code != 0 {
			return fmt.Errorf("%+v", out)
		}
		return nil
	})
}
