package member_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
)

// startMember starts a member in this process and closes it with the test.
func startMember(t *testing.T, opts member.Options) *member.Member {
	t.Helper()
	m, err := member.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return m
}

func TestInProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var log bytes.Buffer
	m := startMember(t, member.Options{DataDir: dir, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	put(t, m.Client(), "k", "v")
	if !m.Healthy() {
		t.Error("not healthy")
	}
	_, err := member.Start(t.Context(), member.Options{DataDir: dir})
	if !errors.Is(err, member.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("process %d:", os.Getpid())) {
		t.Errorf("second member on the directory: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
	if m.Healthy() {
		t.Error("healthy after its end")
	}
	for line := range strings.Lines(log.String()) {
		if !strings.Contains(line, "little free space") { // depends on the machine
			t.Errorf("a common start and stop is not worth a word at Info, got:\n%s", line)
		}
	}
	again := startMember(t, member.Options{DataDir: dir})
	if v := get(t, again.Client(), "k"); v != "v" {
		t.Errorf("after a restart k is %q", v)
	}
}

// TestStatusOfAClosedMember: etcd panics if its database is closed already, which ended
// the process that maintained it.
func TestStatusOfAClosedMember(t *testing.T) {
	t.Parallel()
	m := startMember(t, member.Options{DataDir: t.TempDir()})
	if _, err := m.Client().Status(t.Context(), "portolan"); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Client().Status(t.Context(), "portolan"); err == nil {
		t.Error("a member that has ended says how it is")
	}
}

func TestRunReturnsWhenClosed(t *testing.T) {
	t.Parallel()
	m := startMember(t, member.Options{DataDir: t.TempDir()})
	ran := make(chan error, 1)
	go func() { ran <- m.Run(context.Background()) }()
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ran; err != nil {
		t.Errorf("Run of a closed member: %v", err)
	}
}

func TestLargeTransaction(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(shortDir(t), "s")
	startMember(t, member.Options{DataDir: t.TempDir(), Socket: socket})
	client := clientOf(t, "unix://"+socket)
	value := strings.Repeat("v", 1000)
	ops := make([]clientv3.Op, 10_001)
	for i := range ops {
		ops[i] = clientv3.OpPut(fmt.Sprintf("k%05d", i), value)
	}
	// etcd gives a request 5 seconds, which may be too short on a busy machine.
	eventually(t, "the transaction", func() bool {
		_, err := client.Txn(t.Context()).Then(ops...).Commit()
		if err != nil && !errors.Is(err, rpctypes.ErrTimeout) {
			t.Fatal(err)
		}
		return err == nil
	})
	answer, err := client.Get(t.Context(), "k", clientv3.WithPrefix())
	if err != nil || len(answer.Kvs) != len(ops) {
		t.Errorf("got %d keys, %v", len(answer.Kvs), err)
	}
	client.Close()
}

func TestSocketPath(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		prepare func(t *testing.T, dir string) (socket string)
		want    string // empty if it starts
	}{
		"new directory": {func(_ *testing.T, dir string) string { return filepath.Join(dir, "sub", "s") }, ""},
		"stale socket": {func(t *testing.T, dir string) string {
			listen(t, filepath.Join(dir, "s")).Close()
			return filepath.Join(dir, "s")
		}, ""},
		"taken socket": {func(t *testing.T, dir string) string {
			l := listen(t, filepath.Join(dir, "s"))
			t.Cleanup(func() { l.Close() })
			return filepath.Join(dir, "s")
		}, "another process listens on it"},
		"not a socket": {func(t *testing.T, dir string) string {
			if err := os.WriteFile(filepath.Join(dir, "s"), []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(dir, "s")
		}, "not a socket"},
		"open directory": {func(t *testing.T, dir string) string {
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			return filepath.Join(dir, "s")
		}, "0700"},
		"too long": {func(_ *testing.T, dir string) string { return filepath.Join(dir, strings.Repeat("s", 107)) }, "at most 107"},
		"relative": {func(*testing.T, string) string { return "s" }, "absolute"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			socket := test.prepare(t, shortDir(t))
			m, err := member.Start(t.Context(), member.Options{DataDir: t.TempDir(), Socket: socket})
			if test.want != "" {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Fatalf("got %v, want %q in it", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			client, err := dial.New(dial.Options{Endpoints: []string{"unix://" + socket}})
			if err != nil {
				t.Fatal(err)
			}
			put(t, client, "k", "v")
			client.Close()
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// listen makes a socket that stays when its listener is closed.
func listen(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	return l
}

func TestStartRefusesBadDataDir(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, dir := range map[string]string{"file": file, "below a file": filepath.Join(file, "x"), "proc": "/proc/portolan"} {
		if _, err := member.Start(t.Context(), member.Options{DataDir: dir}); err == nil || !strings.Contains(err.Error(), "data directory "+dir) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := member.Start(t.Context(), member.Options{}); err == nil {
		t.Error("no error without a data directory")
	}
}

// TestStopWithStreamsOpen: the stop does not wait for clients that watch or keep leases
// alive. etcd itself sometimes waits for them.
func TestStopWithStreamsOpen(t *testing.T) {
	t.Parallel()
	for i := range 24 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			socket := filepath.Join(shortDir(t), "s")
			m := startMember(t, member.Options{DataDir: t.TempDir(), Socket: socket, StopTimeout: 4 * time.Second})
			client := clientOf(t, "unix://"+socket)
			granted, err := client.Grant(t.Context(), 60)
			if err != nil {
				t.Fatal(err)
			}
			alive, err := client.KeepAlive(t.Context(), granted.ID)
			if err != nil {
				t.Fatal(err)
			}
			<-alive
			if first := <-client.Watch(t.Context(), "k", clientv3.WithCreatedNotify()); !first.Created {
				t.Fatalf("the watch begins with %+v", first)
			}
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
