package integration

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
)

// tlsSecret is a secret with a certificate and its key, in the form of kubectl.
func tlsSecret(name string, of secrettest.Pair) string {
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: %s, namespace: shop}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}\n",
		name, encode(of.Cert), encode(of.Key))
}

// filesBelow returns the content of all files in a directory, except those with one name.
func filesBelow(t *testing.T, dir, without string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() || entry.Name() == without {
			return err
		}
		out[path], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestKeysAreNowhereInTheClear stores a hundred secrets, replaces and deletes some, and reseals
// all. No key is in the data directory, a snapshot, the log, the metrics, a profile or an
// answer, in any form. The server's user can read a key back.
func TestKeysAreNowhereInTheClear(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := startServer(t, serverOptions{dataDir: dir, args: []string{"--log-level", "debug", "--pprof"}})
	var all []secrettest.Pair
	store := func(names ...string) {
		var documents []string
		for _, name := range names {
			pair := secrettest.New(t, 24*time.Hour, name+".example")
			all, documents = append(all, pair), append(documents, tlsSecret(name, pair))
		}
		s.apply(strings.Join(documents, "---\n"))
	}
	var names []string
	for i := range 100 {
		names = append(names, fmt.Sprintf("cert-%d", i))
	}
	store(names...)
	store(names[:5]...)
	s.must("", "delete", "secret", names[7], names[8], "-n", "shop", "--yes")
	s.must("", "secret", "key", "add")
	s.must("", "secret", "reseal")
	bad := strings.Replace(tlsSecret("bad", all[0]), "tls.crt", "tls.cert", 1)
	if refused := s.try(bad, "apply", "-f", "-"); refused.code == 0 {
		t.Error("a key without its certificate was stored")
	}
	newest := all[100] // the certificate that replaced cert-0
	if got := s.must("", "secret", "read", names[0], "tls.key", "-n", "shop"); got != string(newest.Key) {
		t.Errorf("read back: %d bytes", len(got))
	}
	if other := s.try("", "secret", "read", names[0], "tls.crd", "-n", "shop"); other.code != 65 {
		t.Errorf("an entry that is not there: %+v", other)
	}

	seen := filesBelow(t, dir, "sealing.key")
	snapshot := filepath.Join(t.TempDir(), "mesh.snapshot")
	s.must("", "store", "backup", "--without-keys", snapshot)
	for name, args := range map[string][]string{
		"get": {"get", "secrets", "-n", "shop", "-o", "json"}, "get yaml": {"get", "secret", names[0], "-n", "shop", "-o", "yaml"},
		"describe": {"describe", "secret/" + names[0], "-n", "shop"}, "history": {"history", "secret/" + names[0], "-n", "shop", "-o", "json"},
		"describe plain": {"describe", "secret/" + names[1], "-n", "shop", "-o", "yaml"}, "analyze": {"analyze", "-A"}, "diff": {"diff", "-f", "-"}, "dry run": {"apply", "-f", "-", "--dry-run", "server"},
		"audit": {"audit", "-o", "json"}, "export": {"export"}, "list": {"secret", "list", "-A"}, "status": {"secret", "status", "-o", "json"},
	} {
		out := s.try(tlsSecret(names[0], newest), args...)
		if out.code != 0 && name != "diff" {
			t.Errorf("portolan %s: exit code %d: %s", name, out.code, out.stderr)
		}
		seen["portolan "+name] = []byte(out.stdout + out.stderr)
	}
	for _, path := range []string{"/metrics", "/debug/pprof/heap?debug=1", "/debug/pprof/heap", "/debug/pprof/goroutine?debug=2", "/debug/pprof/allocs", "/debug/pprof/cmdline",
		"/api/v1/namespaces/shop/secrets", "/api/v1/secrets?watch=true&resourceVersion=0&timeoutSeconds=1", "/api/v1/namespaces/shop/secrets/" + names[0], "/apis/portolan.io/v1/records?objects=true&limit=500", "/readyz?verbose"} {
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
	seen["snapshot"], seen["log"], seen["refusal"] = content, []byte(s.process.output()), []byte(s.try(bad, "apply", "-f", "-").stderr)
	var keys scanner
	for i, pair := range all {
		keys.add(t, fmt.Sprintf("the key of certificate %d", i), pair)
	}
	for where, content := range seen {
		for _, what := range keys.scan(content) {
			t.Errorf("%s has %s", where, what)
		}
	}
	if len(keys.scan([]byte(s.must("", "secret", "read", names[0], "tls.key", "-n", "shop")))) == 0 {
		t.Error("the scanner does not find a key that was read back")
	}
	if text := string(seen["portolan list"]); !strings.Contains(text, names[0]+".example") || strings.Contains(text, " "+names[7]+" ") {
		t.Errorf("list:\n%.500s", text)
	}
	if text := string(seen["/metrics"]); !strings.Contains(text, `portolan_certificate_expiry_seconds{entry="tls.crt",name="cert-0",namespace="shop"} 8`) {
		t.Error("the metrics have no end of cert-0")
	}
}

// TestAServerWithoutTheSealingKey serves everything else and reports what it lacks. With the
// key it serves all again.
func TestAServerWithoutTheSealingKey(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	s := startServer(t, serverOptions{dataDir: dir})
	pair := secrettest.New(t, time.Hour, "door.example")
	s.apply(tlsSecret("door", pair))
	keys := filepath.Join(t.TempDir(), "sealing.key")
	if err := os.WriteFile(keys, []byte(s.must("", "secret", "key", "export")), 0o600); err != nil {
		t.Fatal(err)
	}
	s.kill()
	if err := os.Remove(filepath.Join(dir, "sealing.key")); err != nil {
		t.Fatal(err)
	}
	s.start()
	s.apply(fill(addressed, "$name", "red", "$port", 5432, "$target", 1))
	if text, err := s.get("/readyz?verbose", nil); err != nil || !strings.Contains(string(text), "secret/shop/door: sealing key") {
		t.Errorf("%s, %v", text, err)
	}
	if again := s.try(tlsSecret("window", pair), "apply", "-f", "-"); again.code == 0 || !strings.Contains(again.stderr, "portolan secret key import") {
		t.Errorf("a secret without the key of the store: %+v", again)
	}
	s.must("", "get", "secret", "door", "-n", "shop")
	s.must("", "secret", "key", "import", keys)
	if got := s.must("", "secret", "read", "door", "tls.key", "-n", "shop"); got != string(pair.Key) {
		t.Errorf("read back: %d bytes", len(got))
	}
	s.apply(tlsSecret("window", pair))
}

// TestNoMachineCanConnect: a server whose sealing key does not open the root of the mesh says so
// before all else, in its status and its readiness.
func TestNoMachineCanConnect(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{dataDir: filepath.Join(t.TempDir(), "data"), args: []string{"--secure-xds-address", "127.0.0.1:0"}})
	s.must("", "ca", "root")
	if out := s.try("", "store", "status"); out.code != 0 {
		t.Errorf("before: %s%s", out.stdout, out.stderr)
	}
	s.kill()
	key := filepath.Join(s.o.dataDir, "sealing.key")
	if err := os.Rename(key, key+".moved"); err != nil {
		t.Fatal(err)
	}
	s.start()
	const words = "no machine can connect, since this server has no certificate: "
	report, err := s.get("/readyz?verbose", nil)
	if err == nil || !strings.Contains(err.Error(), "503 Service Unavailable: [-] machines: "+words) {
		t.Errorf("its readiness does not begin with %q: %s, %v", words, report, err)
	}
	out := s.try("", "store", "status")
	if out.code != 1 || !strings.Contains(out.stdout+out.stderr, words) || !strings.Contains(out.stdout+out.stderr, "secrets cannot be opened") {
		t.Errorf("exit code %d: %s%s", out.code, out.stdout, out.stderr)
	}
}

// TestServersShareSecrets: a server opens what another one sealed once it has the key. A server
// without a key, and without a place for one, refuses secrets and serves everything else.
func TestServersShareSecrets(t *testing.T) {
	t.Parallel()
	at, dir := startEtcd(t), t.TempDir()
	socket := func(name string) []string { return []string{"--api-socket", filepath.Join(dir, name+".sock")} }
	one := startServer(t, serverOptions{etcd: at, args: append(socket("one"), "--sealing-key", filepath.Join(dir, "one.key"))})
	two := startServer(t, serverOptions{etcd: at, args: append(socket("two"), "--sealing-key", filepath.Join(dir, "two.key"))})
	none := startServer(t, serverOptions{etcd: at})
	pair := secrettest.New(t, time.Hour, "door.example")
	if refused := none.try(tlsSecret("door", pair), "apply", "-f", "-"); refused.code == 0 || !strings.Contains(refused.stderr, "--sealing-key") {
		t.Errorf("%+v", refused)
	}
	one.apply(tlsSecret("door", pair))
	file := filepath.Join(dir, "handed")
	if err := os.WriteFile(file, []byte(one.must("", "secret", "key", "export")), 0o600); err != nil {
		t.Fatal(err)
	}
	two.must("", "secret", "key", "import", file)
	eventually(t, "the other server reads the secret", func() error {
		if got := two.try("", "secret", "read", "door", "tls.key", "-n", "shop"); got.stdout != string(pair.Key) {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	two.apply(tlsSecret("window", pair))
	none.apply(fill(addressed, "$name", "red", "$port", 5432, "$target", 1))
	if text, err := none.get("/readyz?verbose", nil); err != nil || !strings.Contains(string(text), "secrets cannot be opened") {
		t.Errorf("%s, %v", text, err)
	}
}

// TestKubectlStoresSecrets, lists and deletes them. kubectl's own annotation, which contains
// the data, is not stored.
func TestKubectlStoresSecrets(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	k := newKubectl(t, s)
	pair := secrettest.New(t, time.Hour, "door.example")
	cert, key := write(t, "cert.pem", string(pair.Cert)), write(t, "key.pem", string(pair.Key))
	document := k.expectOutput(true, "", []string{"create", "secret", "tls", "door", "--cert", cert, "--key", key, "--dry-run=client", "-o", "yaml"})
	k.expectOutput(true, document, []string{"create", "--validate=false", "-f", "-"}, "secret/door created")
	k.expectOutput(true, "", []string{"get", "secrets"}, "door")
	k.expectOutput(true, tlsSecret("window", pair), []string{"apply", "-f", "-", "--validate=false"}, "created")
	if text := k.expectOutput(true, "", []string{"get", "secret", "window", "-o", "yaml"}, "kubernetes.io/tls"); strings.Contains(text, "last-applied") {
		t.Errorf("kubectl's copy of the data is stored: %s", text)
	}
	if got := s.must("", "secret", "read", "window", "tls.key", "-n", "shop"); got != string(pair.Key) {
		t.Errorf("read back: %d bytes", len(got))
	}
	k.expectOutput(true, "", []string{"delete", "secret", "door"}, "deleted")
}
