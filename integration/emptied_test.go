package integration

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// TestAnEmptiedDataDirectory: a server whose volume is not mounted removes nothing from its
// proxies. It does not start, and says what to do, until the operator removes the mark of the old one. A
// running one continues from memory.
func TestAnEmptiedDataDirectory(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	s.apply(entry("before", 80))
	dir := s.o.dataDir
	if err := os.RemoveAll(filepath.Join(dir, "etcd")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(storeOf(t, dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server says that its store is gone", func() error {
		report, err := s.get("/readyz", nil)
		if err == nil && !strings.Contains(string(report), "the store is gone") {
			err = errors.New(string(report))
		}
		return err
	})
	if _, err := s.get("/apis/networking.istio.io/v1/namespaces/shop/serviceentries/before", nil); err != nil {
		t.Error(err)
	}
	s.kill()

	serve := func(args ...string) outcome {
		return command(t, "", append([]string{"serve", "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0", "--data-dir", dir}, args...)...)
	}
	for _, empty := range []string{filepath.Join(dir, "etcd"), dir} {
		if err := os.RemoveAll(empty); err != nil {
			t.Fatal(err)
		}
		for _, refused := range []outcome{serve(), serve("--new-store")} { // a mark outranks the flag
			for _, words := range []string{"the store is gone", "remove ", dir + ".portolan", "mount its volume"} {
				if refused.code != 1 || !strings.Contains(refused.stderr, words) {
					t.Errorf("without %s: exit code %d, and not %q: %s", empty, refused.code, words, refused.stderr)
				}
			}
		}
	}
	if err := os.Remove(dir + ".portolan"); err != nil {
		t.Fatal(err)
	}
	again := startServer(t, serverOptions{dataDir: dir})
	again.apply(entry("after", 80))
}

// TestAServerForOthersBeginsNoStore: a server that others can reach, on an empty directory and
// without a mark, is not the first of a new mesh: it ends and says what to do, and nothing was
// made. Told to, it begins a store; then the flag is refused.
func TestAServerForOthersBeginsNoStore(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	identity := []string{
		"--store-name", "cp-1", "--store-peer-url", "https://" + local(freePort(t)), "--store-client-url", "https://" + local(freePort(t)),
		"--secure-xds-address", "127.0.0.1:0",
	}
	args := append([]string{"serve", "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0", "--data-dir", dir}, identity...)
	refused := command(t, "", args...)
	for _, words := range []string{"there is no store", dir + " is empty", "portolan store restore FILE --data-dir " + dir, "--join", "--new-store"} {
		if refused.code != 1 || !strings.Contains(refused.stderr, words) {
			t.Errorf("exit code %d, and not %q: %s", refused.code, words, refused.stderr)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("it made %v, %v", left, err)
	}
	s := startServer(t, serverOptions{dataDir: dir, args: append(identity, "--new-store")})
	s.apply(entry("first", 80))
	s.kill()
	if out := command(t, "", append(args, "--new-store")...); out.code != 64 || !strings.Contains(out.stderr, "--new-store: "+dir+" has a store: leave the flag out") {
		t.Errorf("the flag was left: exit code %d: %s", out.code, out.stderr)
	}
	s.o.args = identity
	s.start()
	if _, err := s.get("/apis/networking.istio.io/v1/namespaces/shop/serviceentries/first", nil); err != nil {
		t.Error(err)
	}
}

// TestAnEmptiedEtcd: an external etcd that comes back empty removes nothing either. A restart
// of the server begins a new store.
func TestAnEmptiedEtcd(t *testing.T) {
	t.Parallel()
	address := local(freePort(t))
	at := etcdtest.At(t, "http://"+address)
	etcd := etcdtest.NewServer(t, at)
	s := startServer(t, serverOptions{etcd: address})
	s.apply(entry("before", 80))
	etcd.Stop()
	etcdtest.NewServer(t, at)
	eventually(t, "the server says that its store was emptied", func() error {
		report, err := s.get("/readyz", nil)
		if err == nil && !strings.Contains(string(report), "was emptied") {
			err = errors.New(string(report))
		}
		return err
	})
	if _, err := s.get("/apis/networking.istio.io/v1/namespaces/shop/serviceentries/before", nil); err != nil {
		t.Error(err)
	}
	if out := s.try(entry("after", 80), "apply", "-f", "-"); out.code != 69 || !strings.Contains(out.stderr, "emptied") {
		t.Errorf("a write: exit code %d: %s", out.code, out.stderr)
	}
	s.kill()
	s.start()
	s.apply(entry("after", 80))
}
