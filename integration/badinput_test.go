package integration

import (
	"fmt"
	"strings"
	"testing"
)

const goodGateway = `
apiVersion: networking.istio.io/v1
kind: Gateway
metadata: {name: new, namespace: shop}
spec:
  selector: {app: edge}
  servers: [{port: {number: 8080, name: http, protocol: HTTP}, hosts: ["*"]}]
`

// TestBadInput: each mistake gives one clear error and the exit code of its kind. It changes
// nothing, not even good objects in the same file.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s, x := startServer(t, serverOptions{}), newShop(t)
	s.apply(x.all(50, 50))
	stale := s.must("", "get", "vs/reviews", "-n", "shop", "-o", "yaml")
	s.apply(x.routes(40, 60))
	before := s.storedKeys()
	entry := func(replace, by string) string {
		document := strings.Replace(x.entry(x.v1), replace, by, 1)
		if document == x.entry(x.v1) {
			t.Fatalf("%q is not in the document", replace)
		}
		return document
	}
	second := func(document string) string { return goodGateway + "---" + document }
	for _, c := range []struct {
		name     string
		document string
		args     []string
		code     int
		words    []string // the error has to contain
	}{
		{"broken YAML", second("\nspec: [unclosed\n"), nil, 65, []string{"stdin", "document 2"}},
		{"unknown kind", second(entry("ServiceEntry", "ServiceEntries")), nil, 65, []string{"document 2", "ServiceEntries"}},
		{"unknown version", second(entry("networking.istio.io/v1", "networking.istio.io/v9")), nil, 65, []string{"document 2", "v9"}},
		{"unknown field", second(entry("resolution:", "resolutoin:")), nil, 65, []string{"serviceentry/shop/reviews", "spec.resolutoin"}},
		{"other namespace", second(x.entry(x.v1)), []string{"-n", "other"}, 65, []string{"metadata.namespace", "shop", "other"}},
		{"two documents with one key", second(x.entry(x.v1) + "---" + x.entry(x.v2)), nil, 65, []string{"twice", "serviceentry/shop/reviews"}},
		{"invalid port", second(entry(fmt.Sprint("number: ", x.service), "number: 70000")), nil, 65, []string{"serviceentry/shop/reviews", "spec.ports[0].number", "65535"}},
		{"aliases that stand for much", second("\na: &a " + strings.Repeat("x", 10_000) + "\nb: [" + strings.Repeat("*a,", 100_000) + "]\n"), nil, 65, []string{"document 2", "aliases stand for 1000"}},
		{"nested too deep", second("\napiVersion: networking.istio.io/v1alpha3\nkind: EnvoyFilter\nmetadata: {name: deep, namespace: shop}\nspec: {configPatches: [{patch: {value: " +
			strings.Repeat("{a: ", 3_400) + strings.Repeat("}", 3_400) + "}}]}\n"), nil, 65, []string{"envoyfilter/shop/deep", "spec.configPatches[0].patch.value.a.a.a...", "nested 3405 deep"}},
		{"finalizers", second(entry("namespace: shop", "namespace: shop, finalizers: [a/b]")), nil, 65, []string{"serviceentry/shop/reviews", "metadata.finalizers"}},
		{"stale resource version", second("\n" + stale), nil, 75, []string{"virtualservice/shop/reviews"}},
		{"nothing in it", "# nothing\n", nil, 65, []string{"no objects"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := s.try(c.document, append([]string{"apply", "-f", "-"}, c.args...)...)
			expectRefusal(t, out, c.code, c.words...)
			if after := s.storedKeys(); after != before {
				t.Errorf("it changed something:\n%s\nwas\n%s", after, before)
			}
		})
	}
	t.Run("no such file", func(t *testing.T) {
		expectRefusal(t, s.try("", "apply", "-f", "/nonexistent.yaml"), 65, "/nonexistent.yaml")
	})
	t.Run("no such object", func(t *testing.T) {
		expectRefusal(t, s.try("", "get", "vs", "nothing", "-n", "shop"), 1, "nothing")
		expectRefusal(t, s.try("", "delete", "vs", "nothing", "-n", "shop"), 1, "virtualservice/shop/nothing")
	})
	t.Run("no such flag", func(t *testing.T) {
		expectRefusal(t, s.try("", "apply", "--fiel", "x"), 64, "--fiel")
	})
	t.Run("unreachable server", func(t *testing.T) {
		address := fmt.Sprint("http://", local(freePort(t)))
		out := command(t, x.entry(x.v1), "apply", "-f", "-", "--server", address)
		expectRefusal(t, out, 69, address, "portolan serve")
	})
	if after := s.storedKeys(); after != before {
		t.Errorf("something changed:\n%s\nwas\n%s", after, before)
	}
}

// expectRefusal checks that a command failed with an exit code, that it printed one error and
// nothing else, and that the error contains words.
func expectRefusal(t *testing.T, out outcome, code int, words ...string) {
	t.Helper()
	if out.code != code {
		t.Errorf("exit code %d, want %d", out.code, code)
	}
	if out.stdout != "" {
		t.Errorf("it printed %s", out.stdout)
	}
	for _, w := range words {
		if !strings.Contains(out.stderr, w) {
			t.Errorf("the error does not say %q", w)
		}
	}
	if n := strings.Count(out.stderr, "portolan: "); n != 1 {
		t.Errorf("%d errors, want one", n)
	}
	for _, noise := range []string{"panic", "goroutine", "level=", "Usage:"} {
		if strings.Contains(out.stderr, noise) {
			t.Errorf("the error says %q", noise)
		}
	}
	t.Logf("exit code %d: %s", out.code, strings.TrimSpace(out.stderr))
}

// TestServeRefuses: a server that cannot run says why, and does no harm to whoever is in its
// way.
func TestServeRefuses(t *testing.T) {
	s, x := startServer(t, serverOptions{}), newShop(t)
	s.apply(x.all(50, 50))
	before, other := s.storedKeys(), t.TempDir()
	for _, c := range []struct {
		name  string
		args  []string
		code  int
		words []string
	}{
		{"API port in use", []string{"--data-dir", other, "--api-address", s.api, "--xds-address", "127.0.0.1:0"}, 1, []string{"--api-address", s.api}},
		{"xDS port in use", []string{"--data-dir", other, "--xds-address", s.xds, "--api-address", "127.0.0.1:0"}, 1, []string{"--xds-address", s.xds}},
		{"data directory in use", []string{"--data-dir", s.o.dataDir, "--xds-address", "127.0.0.1:0", "--api-address", "127.0.0.1:0"}, 1,
			[]string{s.o.dataDir, fmt.Sprint("process ", s.process.pid())}},
		{"plaintext beyond this machine", []string{"--data-dir", other, "--xds-address", "0.0.0.0:0"}, 64, []string{"--xds-address", "0.0.0.0"}},
		{"mesh config", []string{"--data-dir", other, "--mesh-config", write(t, "mesh.yaml", "acessLogFile: x\n")}, 65, []string{"mesh.yaml", "acessLogFile"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			out := command(t, "", append([]string{"serve", "--log-level", "error"}, c.args...)...)
			expectRefusal(t, out, c.code, c.words...)
			expectEqual(t, "what the server in the way has", s.storedKeys(), before)
		})
	}
}
