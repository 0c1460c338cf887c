package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// configDir is a directory of configuration that a server follows.
type configDir struct {
	t    testing.TB
	path string
}

func newConfigDir(t testing.TB, documents map[string]string) *configDir {
	t.Helper()
	d := &configDir{t, t.TempDir()}
	for name, text := range documents {
		d.write(name, text)
	}
	return d
}

// write replaces a file as editors do: it renames another file to it.
func (d *configDir) write(name, text string) {
	d.t.Helper()
	file := filepath.Join(d.path, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		d.t.Fatal(err)
	}
	hidden := filepath.Join(filepath.Dir(file), "."+filepath.Base(file)+".tmp")
	if err := os.WriteFile(hidden, []byte(text), 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(hidden, file); err != nil {
		d.t.Fatal(err)
	}
}

// TestConfigDirectory serves a mesh from files. A changed file reaches the proxies. An object
// of the store takes precedence over one of a file, until it is deleted.
func TestConfigDirectory(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		x := newShop(t)
		dir := newConfigDir(t, map[string]string{
			"shop.yaml": strings.Join([]string{x.entry(x.v1, x.v2), x.rule(), x.door()}, "\n---\n"), "routes.yaml": x.routes(100, 0),
		})
		s := startServer(t, serverOptions{args: []string{"--config-dir", dir.path}})
		edge, client := s.startPair(v)
		reply := func(version string) {
			t.Helper()
			awaitReply(t, x.atGateway("/"), version)
			awaitReply(t, x.atSidecar("/"), version)
		}
		reply("v1")
		dir.write("routes.yaml", x.routes(0, 100))
		reply("v2")

		if text := s.must("", "get", "serviceentry", "reviews", "-n", "shop", "-o", "yaml"); !strings.Contains(text, "portolan.io/source:") {
			t.Errorf("an object of a file does not say so: %s", text)
		}
		if text := s.must("", "export", "-n", "shop"); strings.Contains(text, "kind:") {
			t.Errorf("what is in files is exported: %s", text)
		}
		out := s.try("", "delete", "virtualservice", "reviews", "-n", "shop", "--yes")
		if out.code == 0 || !strings.Contains(out.stderr, "the object comes from the source "+dir.path+", routes.yaml") {
			t.Errorf("deleting an object of a file: exit code %d, %s", out.code, out.stderr)
		}
		out = s.try(x.routes(100, 0), "apply", "-f", "-")
		if out.code != 0 || !strings.Contains(out.stderr, "PTL0181") {
			t.Errorf("an object that goes before that of a file: exit code %d, %s", out.code, out.stderr)
		}
		reply("v1")
		var sources serve.SourceList
		eventually(t, "the sources are listed", func() error {
			if err := json.Unmarshal([]byte(s.must("", "source", "list", "-o", "json")), &sources); err != nil {
				return err
			}
			if n := len(sources.Items); n != 2 {
				return fmt.Errorf("%d sources", n)
			}
			if of := sources.Items[1]; of.Name != dir.path || of.Objects["VirtualService"] != 1 || of.Shadowed != 1 || of.Problem != "" {
				return fmt.Errorf("%+v", of)
			}
			return nil
		})
		shown := s.must("", "source", "describe", dir.path)
		for _, words := range []string{"serviceentry/shop/reviews", "shop.yaml: document 1 (line 2)", "shadowed by store"} {
			if !strings.Contains(shown, words) {
				t.Errorf("no %q in what a source has:\n%s", words, shown)
			}
		}
		s.remove(x.routes(100, 0))
		reply("v2")

		dir.write("routes.yaml", "apiVersion: networking.istio.io/v1\nkind: VirtualService\nmetadata: {name: reviews\n")
		eventually(t, "what is wrong with a file is shown", func() error {
			if out := s.must("", "source", "describe", dir.path); !strings.Contains(out, ": routes.yaml: ") {
				return fmt.Errorf("%s", out)
			}
			return nil
		})
		reply("v2")
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestAFileIsServedAsTheStoreIs: the same mesh results in the same bytes from the store, from
// files, from another control plane, and from a mix of them.
func TestAFileIsServedAsTheStoreIs(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		x := newShop(t)
		x.v1, x.v2 = &upstream{name: "v1", port: 9001}, &upstream{name: "v2", port: 9002}
		// The entry has an address of its own: a host in a file would be assigned one only a
		// moment later.
		entry := strings.Replace(x.entry(x.v1, x.v2), "location:", "addresses: [10.9.0.1]\n  location:", 1)
		routes := []string{x.rule(), x.routes(90, 10), x.door()}
		whole := newConfigDir(t, map[string]string{"all.yaml": strings.Join(append([]string{entry}, routes...), "\n---\n")})
		half := newConfigDir(t, map[string]string{"entry.yaml": entry})
		stored, files, both := startServer(t, serverOptions{}), startServer(t, serverOptions{args: []string{"--config-dir", whole.path}}),
			startServer(t, serverOptions{args: []string{"--config-dir", half.path, "--config-dir-first"}})
		stored.apply(append([]string{entry}, routes...)...)
		both.apply(routes...)
		fed := startServer(t, serverOptions{args: fedBy(stored, v)})
		fed.awaitFed(stored, 4)
		gives := startServer(t, serverOptions{})
		gives.apply(routes[1:]...)
		three := startServer(t, serverOptions{args: append(fedBy(gives, v), "--config-dir", half.path)})
		three.apply(routes[0])
		three.awaitFed(gives, 2)
		for i, node := range []xdstest.ClientOptions{
			{Node: xdstest.NewNode("router", "10.0.0.1", "edge", "shop", map[string]string{"app": "edge"}), Variant: v, Follow: true},
			{Node: xdstest.NewNode("sidecar", "10.0.0.2", "client", "shop", nil), Variant: v, Follow: true},
		} {
			name := []string{"edge", "client"}[i]
			var clients []*xdstest.Client
			for _, s := range []*server{stored, files, both, fed, three} {
				clients = append(clients, connect(t, s, node))
				s.awaitSynced(s.revision(), name)
			}
			expectSameBytes(t, name+", files", clients[0], clients[1])
			expectSameBytes(t, name+", both", clients[0], clients[2])
			expectSameBytes(t, name+", another control plane", clients[0], clients[3])
			expectSameBytes(t, name+", all three", clients[0], clients[4])
		}
	})
}

// TestFilesAreFollowedWithoutTheStore: a changed file reaches a proxy although etcd is down. If
// the directory goes, its objects stay.
func TestFilesAreFollowedWithoutTheStore(t *testing.T) {
	t.Parallel()
	x := newShop(t)
	dir := newConfigDir(t, map[string]string{
		"shop.yaml": strings.Join([]string{x.entry(x.v1, x.v2), x.rule()}, "\n---\n"), "routes.yaml": x.routes(100, 0),
	})
	etcd := startEtcdProcess(t)
	s := etcd.server("--config-dir", dir.path)
	s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: protocol.Delta})
	awaitReply(t, x.atSidecar("/"), "v1")
	etcd.process.Kill()
	dir.write("routes.yaml", x.routes(0, 100))
	awaitReply(t, x.atSidecar("/"), "v2")
	eventually(t, "the server says that the store is away", func() error {
		text, err := s.get("/readyz?verbose", nil)
		if err == nil && !strings.Contains(string(text), "[!] store: ") {
			return fmt.Errorf("%s", text)
		}
		return err
	})
	if err := os.RemoveAll(dir.path); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is ready, and names the directory", func() error {
		text, err := s.get("/readyz?verbose", nil)
		if err == nil && !strings.Contains(string(text), "[!] sources: source "+dir.path+": ") {
			return fmt.Errorf("%s", text)
		}
		return err
	})
	awaitReply(t, x.atSidecar("/"), "v2")
}

// TestTheStoreIsFollowedWithoutFiles: while the directory is missing, a change of the store
// reaches a proxy, and the objects of files stay. When the directory is back, so are its
// changes.
func TestTheStoreIsFollowedWithoutFiles(t *testing.T) {
	t.Parallel()
	x := newShop(t)
	files := map[string]string{"shop.yaml": strings.Join([]string{x.entry(x.v1, x.v2), x.rule()}, "\n---\n")}
	dir := newConfigDir(t, files)
	s := startServer(t, serverOptions{args: []string{"--config-dir", dir.path}})
	s.apply(x.routes(100, 0))
	s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: protocol.Delta})
	awaitReply(t, x.atSidecar("/"), "v1")
	told := func(what string, is bool) {
		t.Helper()
		eventually(t, what, func() error {
			ready, err := s.get("/readyz?verbose", nil)
			list := s.must("", "source", "list")
			if err == nil && (strings.Contains(string(ready), "[!] sources: source "+dir.path+": ") != is || strings.Contains(list, "its last content is kept") != is) {
				return fmt.Errorf("%s\n%s", ready, list)
			}
			return err
		})
	}
	if err := os.RemoveAll(dir.path); err != nil {
		t.Fatal(err)
	}
	told("the server names the directory that is away", true)
	s.apply(x.routes(0, 100))
	awaitReply(t, x.atSidecar("/"), "v2")
	if err := os.Mkdir(dir.path, 0o700); err != nil {
		t.Fatal(err)
	}
	s.remove(x.routes(0, 100))
	files["routes.yaml"] = x.routes(100, 0)
	for name, text := range files {
		dir.write(name, text)
	}
	told("the directory is followed again", false)
	awaitReply(t, x.atSidecar("/"), "v1")
}
