package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// failFast is how long a write may take to fail while the store is down.
const failFast = 2 * time.Second

// expectDegraded waits until the server reports that it lacks its store, and why. It stays
// ready, so that proxies still connect to it.
func (s *server) expectDegraded(words ...string) {
	s.t.Helper()
	eventually(s.t, "readiness says why the store is away", func() error {
		report, err := s.get("/readyz", nil)
		if err != nil {
			s.t.Fatalf("a server that has its configuration is not ready: %v", err)
		}
		for _, w := range append(words, "[!] store: proxies are served from memory, and writes fail", "degraded") {
			if !strings.Contains(string(report), w) {
				return fmt.Errorf("%q is not in %s", w, report)
			}
		}
		return nil
	})
}

// awaitWhole waits until nothing is degraded, and returns how long that took.
func (s *server) awaitWhole() time.Duration {
	s.t.Helper()
	begun := time.Now()
	eventually(s.t, "the server is whole again", func() error {
		report, err := s.get("/readyz", nil)
		if err == nil && string(report) != "ok\n" {
			err = fmt.Errorf("%s", report)
		}
		return err
	})
	return time.Since(begun).Round(time.Millisecond)
}

// expectRefusal tries a write that has to fail, soon and with words.
func (s *server) expectRefusal(document string, words ...string) {
	s.t.Helper()
	begun := time.Now()
	out := s.try(document, "apply", "-f", "-")
	took := time.Since(begun)
	if out.code != 69 || !strings.Contains(out.stderr, "nothing was written") || late(took, failFast) {
		s.t.Errorf("apply while the store is down: exit code %d after %s\n%s", out.code, took, out.stderr)
	}
	for _, w := range words {
		if !strings.Contains(out.stderr, w) {
			s.t.Errorf("apply while the store is down does not say %q: %s", w, out.stderr)
		}
	}
	s.t.Logf("apply fails after %s: %s", took.Round(time.Millisecond), strings.TrimSpace(out.stderr))
}

// expectXDS connects a new proxy, and waits for its clusters.
func (s *server) expectXDS(name string, port int) {
	s.t.Helper()
	client := xdstest.Dial(s.t, s.xds, xdstest.ClientOptions{
		Node: xdstest.NewNode("sidecar", "10.0.0.9", name, "shop", nil), Variant: protocol.Delta,
	})
	client.Subscribe(xdstest.ClusterType)
	client.Await("the clusters of a proxy that is new", func(held func(string) map[string]xdstest.Held) bool {
		_, ok := held(xdstest.ClusterType)[fmt.Sprintf("outbound|%d||%s", port, shopHost)]
		return ok
	})
}

// gauge returns the sum of a metric over all labels.
func (s *server) gauge(name string) float64 {
	s.t.Helper()
	text, err := s.get("/metrics", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	sum, found := 0.0, false
	for line := range strings.Lines(string(text)) {
		series, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if bare, _, _ := strings.Cut(series, "{"); ok && bare == name {
			var v float64
			if _, err := fmt.Sscan(value, &v); err != nil {
				s.t.Fatal(err)
			}
			sum, found = sum+v, true
		}
	}
	if !found {
		s.t.Fatalf("no metric %s", name)
	}
	return sum
}

// TestStoreDiskFull fills the file system of the store. Proxies are still served, and writes
// fail fast. Once there is space everything works again, without a manual restart.
func TestStoreDiskFull(t *testing.T) {
	disk := smallFileSystem(t, 160)
	s, x := startServer(t, serverOptions{dataDir: filepath.Join(disk, "data")}), newShop(t)
	s.apply(x.all(100, 0))
	edge := s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: protocol.Delta})
	awaitReply(t, x.atGateway("/"), "v1")
	traffic := startLoad(t, "gateway", x.atGateway("/"))

	filler := fillUp(t, disk)
	var firstFailure time.Duration
	for i := 0; firstFailure == 0; i++ {
		begun := time.Now()
		if out := s.try(large(i), "apply", "-f", "-"); out.code != 0 {
			firstFailure = time.Since(begun)
			t.Logf("write %d found the disk full, and failed after %s: %s", i, firstFailure.Round(time.Millisecond), out.stderr)
		} else if i > 1000 {
			t.Fatal("the disk is never full")
		}
	}
	s.expectDegraded("too little free space", "MiB free of 160 MiB", "free some")
	restarts, since := s.gauge("portolan_store_restarts_total"), time.Now()
	for range 3 {
		s.expectRefusal(x.routes(0, 100), "too little free space")
	}
	s.expectXDS("newcomer", x.service)
	traffic.sample(100)
	expectEqual(t, "portolan_store_up", s.gauge("portolan_store_up"), 0)
	eventually(t, "the free space is a metric", func() error {
		if free := s.gauge("portolan_store_free_bytes"); free > 0 {
			return fmt.Errorf("%v bytes", free)
		}
		return nil
	})
	<-time.After(max(0, 3*time.Second-time.Since(since)))
	if n := s.gauge("portolan_store_restarts_total") - restarts; n < 1 || n > 8 {
		t.Errorf("%v attempts to restart the store in %s", n, time.Since(since))
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	t.Logf("whole again %s after there is space", s.awaitWhole())
	s.awaitSynced(s.apply(x.routes(0, 100)), "edge")
	awaitOnly(t, []*load{traffic}, "v2")
	traffic.expectUnharmed()
	s.expectNothingRejected()
	edge.expectNothingRejected()
	expectEqual(t, "portolan_store_up", s.gauge("portolan_store_up"), 1)
	if err := s.process.terminate(t); err != nil {
		t.Errorf("the server ended with %v", err)
	}
}

// large is an object of a quarter of a MiB.
func large(i int) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: large-$i, namespace: bulk, annotations: {pad: $pad}}
spec:
  hosts: [large-$i.bulk.test]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1}]
`, "$i", i, "$pad", strings.Repeat("x", 200<<10))
}

// smallFileSystem mounts a file system of some MiB, and returns its path.
func smallFileSystem(t testing.TB, mib int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0700", mib)); err != nil {
		t.Skipf("SKIPPED, AND NOTHING WAS TESTED: a full disk needs a small one to be mounted, which takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillUp fills a file system, and returns the file that takes the space.
func fillUp(t testing.TB, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "filler")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, size := range []int{1 << 20, 4 << 10} {
		for err = nil; err == nil; {
			_, err = file.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	return name
}

// TestStoreQuota exhausts the quota with the history of one object. The store makes room by
// itself, and writes continue.
func TestStoreQuota(t *testing.T) {
	s := startServer(t, serverOptions{args: []string{"--store-quota", "64Mi"}})
	begun := time.Now()
	refused := time.Time{}
	for i := 0; ; i++ {
		var documents []string
		for object := range 20 {
			documents = append(documents, strings.Replace(large(object), "pad: x", fmt.Sprintf("pad: v%d", i), 1))
		}
		out := s.try(strings.Join(documents, "\n---\n"), "apply", "-f", "-")
		switch {
		case out.code != 0 && refused.IsZero():
			refused = time.Now()
			t.Logf("write %d after %s is refused: %s", i, refused.Sub(begun).Round(time.Millisecond), firstLine(out.stderr))
			if out.code != 69 || !strings.Contains(out.stderr, "nothing was written: the quota of etcd is used up") {
				t.Errorf("exit code %d: %s", out.code, out.stderr)
			}
		case out.code == 0 && !refused.IsZero():
			t.Logf("write %d succeeds, %s after the refusal", i, time.Since(refused).Round(time.Millisecond))
			log := s.process.output()
			for _, words := range []string{"the store takes no writes: its quota is used up", "all history of the store was dropped", "store defragmented", "the store takes writes again"} {
				if !strings.Contains(log, words) {
					t.Errorf("the log does not say %q", words)
				}
			}
			s.awaitWhole()
			return
		case time.Since(begun) > patience:
			t.Fatalf("refused at %v, and not taken again: %s", refused, firstLine(out.stderr))
		}
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// TestStoreHung stops the store process, which then does not answer. The server reports it, and
// another process takes its place.
func TestStoreHung(t *testing.T) {
	t.Parallel()
	s, x := startServer(t, serverOptions{}), newShop(t)
	s.apply(x.all(100, 0))
	store := storeOf(t, s.o.dataDir)
	if err := syscall.Kill(store, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	s.expectDegraded("has not answered for")
	t.Logf("told after %s", time.Since(stopped).Round(time.Millisecond))
	s.expectRefusal(x.routes(0, 100), "has not answered for")
	s.expectXDS("newcomer", x.service)
	s.awaitWhole()
	t.Logf("another process serves after %s", time.Since(stopped).Round(time.Millisecond))
	s.apply(x.routes(0, 100))
	if storeOf(t, s.o.dataDir) == store {
		t.Error("it is the same process")
	}
}

// TestStoreRestartsLeaveNothing kills the store process again and again. The server has no more
// goroutines and open files afterwards than before.
func TestStoreRestartsLeaveNothing(t *testing.T) {
	t.Parallel()
	s, x := startServer(t, serverOptions{}), newShop(t)
	crash := func(i int) {
		store := storeOf(t, s.o.dataDir)
		if err := syscall.Kill(store, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another store process takes writes", func() error {
			if out := s.try(x.all(100-i, i), "apply", "-f", "-"); out.code != 0 {
				return errors.New(out.stderr)
			}
			return nil
		})
		if storeOf(t, s.o.dataDir) == store {
			t.Fatal("it is the same process")
		}
	}
	crash(1)
	crash(2)
	s.awaitWhole()
	goroutines, files := s.gauge("go_goroutines"), s.gauge("process_open_fds")
	// What comes and goes by itself is fewer than the crashes; one of each would be left by each.
	const crashes = 4
	for i := range crashes {
		crash(i + 3)
	}
	expectEqual(t, "portolan_store_restarts_total", s.gauge("portolan_store_restarts_total"), 2+crashes)
	eventually(t, "as many goroutines and open files as before", func() error {
		g, f := s.gauge("go_goroutines"), s.gauge("process_open_fds")
		if g >= goroutines+crashes || f >= files+crashes {
			return fmt.Errorf("%v and %v, and %v and %v before", g, f, goroutines, files)
		}
		return nil
	})
}

// TestStoreDamaged starts a server on a log with one changed bit. It says what is damaged and
// what to do. A server that was running at the time continues to serve.
func TestStoreDamaged(t *testing.T) {
	t.Parallel()
	s, x := startServer(t, serverOptions{}), newShop(t)
	for i := range 20 {
		s.apply(x.all(100-i, i))
	}
	logs, err := filepath.Glob(filepath.Join(s.o.dataDir, "etcd", "member", "wal", "*.wal"))
	if err != nil || len(logs) != 1 {
		t.Fatal(logs, err)
	}
	changeBit(t, logs[0], 20_000)
	// What etcd says of it depends on whether the bit is of a record's length or of its content.
	says := []string{"the data is damaged", filepath.Dir(logs[0]), "portolan store restore"}
	if err := syscall.Kill(storeOf(t, s.o.dataDir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.expectDegraded(says...)
	s.expectRefusal(x.routes(0, 100), says...)
	s.expectXDS("newcomer", x.service)
	if err := s.process.terminate(t); err != nil {
		t.Errorf("the server ended with %v", err)
	}

	begun := time.Now()
	out := command(t, "", "serve", "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0", "--data-dir", s.o.dataDir)
	if took := time.Since(begun); out.code != 1 || late(took, shutdown) {
		t.Errorf("exit code %d after %s", out.code, took)
	}
	for _, words := range says {
		if !strings.Contains(out.stderr, words) {
			t.Errorf("it does not say %q: %s", words, out.stderr)
		}
	}
	changeBit(t, logs[0], 20_000)
	s.start()
}

func changeBit(t testing.TB, path string, at int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	b := []byte{0}
	_, err = f.ReadAt(b, at)
	if err == nil {
		b[0] ^= 1
		_, err = f.WriteAt(b, at)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestStoreTooLittleSpace: if etcd would have no space for its first files, a server refuses to
// start, before it creates anything.
func TestStoreTooLittleSpace(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(smallFileSystem(t, 72), "data")
	out := command(t, "", "serve", "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0", "--data-dir", dir)
	for _, words := range []string{dir, "72 MiB free of 72 MiB", "needs 139 MiB", "free some, or move the directory"} {
		if out.code != 1 || !strings.Contains(out.stderr, words) {
			t.Errorf("exit code %d, and not %q: %s", out.code, words, out.stderr)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || slices.ContainsFunc(left, func(e os.DirEntry) bool { return e.Name() == "etcd" }) {
		t.Errorf("left behind: %v, %v", left, err)
	}
}
