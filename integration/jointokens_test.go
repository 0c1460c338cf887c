package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestJoinTokensAreNowhereInTheClear: the text of a token is in no file of the store, no
// snapshot, log or metric, and in no answer except that to its creation.
func TestJoinTokensAreNowhereInTheClear(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := startServer(t, serverOptions{dataDir: dir, args: []string{"--log-level", "debug"}})
	var tokens []string
	for range 3 {
		tokens = append(tokens, strings.TrimSpace(s.must("", "token", "create", "-n", "shop", "--service-account", "web", "--cidr", "10.0.0.0/8")))
	}
	s.must("", "token", "revoke", tokens[2])
	snapshot := filepath.Join(t.TempDir(), "mesh.snapshot")
	s.must("", "store", "backup", "--without-keys", snapshot)

	seen := filesBelow(t, dir, "sealing.key")
	for name, args := range map[string][]string{
		"list": {"token", "list", "-A", "-o", "yaml"}, "get": {"get", "jointokens", "-A", "-o", "json"}, "audit": {"audit", "-o", "json"}, "export": {"export"},
	} {
		seen["portolan "+name] = []byte(s.must("", args...))
	}
	for _, path := range []string{"/metrics", "/apis/portolan.io/v1/jointokens", "/apis/portolan.io/v1/records?objects=true&limit=500", "/readyz?verbose"} {
		text, err := s.get(path, nil)
		if err != nil {
			t.Error(err)
		}
		seen[path] = text
	}
	content, err := os.ReadFile(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	seen["snapshot"], seen["log"] = content, []byte(s.process.output())
	for where, text := range seen {
		for i, token := range tokens {
			if secret := token[strings.LastIndex(token, "_")+1:]; len(secret) != 52 || strings.Contains(string(text), secret) {
				t.Errorf("%s has token %d", where, i)
			}
		}
	}
	if listed := string(seen["portolan list"]); strings.Count(listed, "serviceAccount: web") != 2 || strings.Contains(listed, "hash") {
		t.Errorf("list:\n%s", listed)
	}
}

// TestNoTokenIsForTheServers: no token lets a machine pose as a server of the mesh.
func TestNoTokenIsForTheServers(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	out := s.try("", "token", "create", "-n", "istio-system", "--service-account", "portolan")
	if want := "spiffe://cluster.local/ns/istio-system/sa/portolan is the identity of the servers, which no machine gets"; out.code == 0 || !strings.Contains(out.stderr, want) {
		t.Errorf("exit code %d, want the refusal %q:\n%s", out.code, want, out.stderr)
	}
	if listed := s.must("", "get", "jointokens", "-A"); strings.Contains(listed, "istio-system") {
		t.Errorf("a token is there:\n%s", listed)
	}
}
