package member_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
)

func TestChildServesOnSocket(t *testing.T) {
	t.Parallel()
	opts := childOptions(t, filepath.Join(t.TempDir(), "made", "on", "start"))
	child, err := member.NewChild(opts)
	if err != nil {
		t.Fatal(err)
	}
	if child.Healthy() {
		t.Error("healthy before Start")
	}
	endpoint, err := child.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !child.Healthy() {
		t.Error("not healthy after Start")
	}
	client, err := dial.New(dial.Options{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	put(t, client, "k", "v")
	if v := get(t, client, "k"); v != "v" {
		t.Errorf("got %q", v)
	}
	client.Close()
	store := readLock(t, opts.DataDir)
	if store.ParentPID != os.Getpid() || store.PID == os.Getpid() {
		t.Errorf("lock file names %+v", store)
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := child.Run(ctx); err != nil {
		t.Errorf("Run: %v", err)
	}
	if child.Healthy() || !processGone(store.PID) {
		t.Error("the store process outlived Run")
	}
	if left := entries(t, opts.RuntimeDir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := child.Close(); err != nil {
		t.Errorf("Close after Run: %v", err)
	}
}

func TestChildIsRestarted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	child, endpoint := startChild(t, childOptions(t, dir))
	client := clientOf(t, endpoint)
	first := readLock(t, dir)
	put(t, client, "k", "v")
	kill(t, first.PID, syscall.SIGKILL)
	eventually(t, "another store process", func() bool { return child.Healthy() && readLock(t, dir).PID != first.PID })
	if v := get(t, client, "k"); v != "v" {
		t.Errorf("the acknowledged write reads %q", v)
	}
	put(t, client, "k", "again")
	if socket := readLock(t, dir).SocketDir; socket != first.SocketDir {
		t.Errorf("socket moved from %s to %s", first.SocketDir, socket)
	}
}

func TestChildIgnoresSignalsForAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, endpoint := startChild(t, childOptions(t, dir))
	client := clientOf(t, endpoint)
	store := readLock(t, dir)
	if group, err := syscall.Getpgid(store.PID); err != nil || group != store.PID {
		t.Errorf("process group %d, %v; want its own", group, err)
	}
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		kill(t, store.PID, s)
		put(t, client, "k", s.String())
	}
	if now := readLock(t, dir); now.PID != store.PID {
		t.Errorf("store process %d became %d", store.PID, now.PID)
	}
}

func TestChildEndsWithParent(t *testing.T) {
	t.Parallel()
	dir, runtimeDir := t.TempDir(), shortDir(t)
	s := startServer(t, dir, runtimeDir)
	put(t, clientOf(t, s.endpoint), "k", "v")
	store := readLock(t, dir)
	s.kill()
	eventually(t, "end of the store process", func() bool { return processGone(store.PID) })
	if left := entries(t, runtimeDir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	m := startMember(t, member.Options{DataDir: dir})
	if v := get(t, m.Client(), "k"); v != "v" {
		t.Errorf("the acknowledged write reads %q", v)
	}
}

func TestLeftoversOfKilledServer(t *testing.T) {
	t.Parallel()
	for range 20 {
		dir, runtimeDir := t.TempDir(), shortDir(t)
		s := startServer(t, dir, runtimeDir)
		store := readLock(t, dir)
		holdOpen(t, s.endpoint)
		s.kill()
		_ = syscall.Kill(store.PID, syscall.SIGKILL)
		eventually(t, "end of the store process", func() bool { return processGone(store.PID) })
		if len(entries(t, runtimeDir)) == 0 {
			continue // it cleaned up before it was killed, in spite of an open stream
		}
		startMember(t, member.Options{DataDir: dir})
		if left := entries(t, runtimeDir); len(left) > 0 {
			t.Errorf("the next start left %v", left)
		}
		return
	}
	t.Fatal("every store process cleaned up before it was killed")
}

func TestOrphanIsWaitedFor(t *testing.T) {
	t.Parallel()
	dir, pid := orphan(t, 0)
	startMember(t, member.Options{DataDir: dir})
	eventually(t, "end of the store process, which has let go of the directory", func() bool { return processGone(pid) })
}

func TestOrphanThatStays(t *testing.T) {
	t.Parallel()
	dir, pid := orphan(t, syscall.SIGSTOP)
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	_, err := member.Start(t.Context(), member.Options{DataDir: dir})
	if !errors.Is(err, member.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("process %d, which outlived its server", pid)) {
		t.Errorf("got %v", err)
	}
}

// orphan returns a store process whose server was killed, and which has then got a
// signal. The signal cannot come earlier: the kernel wakes stopped processes when their
// parent ends. A process that has ended before the signal is no orphan, and orphan tries
// with another server.
func orphan(t *testing.T, signal syscall.Signal) (dir string, pid int) {
	t.Helper()
	for range 20 {
		dir := t.TempDir()
		s := startServer(t, dir, shortDir(t))
		pid := readLock(t, dir).PID
		holdOpen(t, s.endpoint)
		s.kill()
		if syscall.Kill(pid, signal) == nil && holdsLock(pid, dir) {
			return dir, pid
		}
	}
	t.Fatal("every store process ended before it took a signal, in spite of open streams")
	return "", 0
}

// holdsLock says whether the lock file names the process, and the process has it open.
func holdsLock(pid int, dir string) bool {
	var h holder
	text, err := os.ReadFile(filepath.Join(dir, "portolan.lock"))
	if err != nil || json.Unmarshal(text, &h) != nil || h.PID != pid {
		return false
	}
	fds, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	return slices.ContainsFunc(fds, func(fd string) bool {
		target, err := os.Readlink(fd)
		return err == nil && filepath.Base(target) == "portolan.lock"
	})
}

// holdOpen opens a stream to a store process. The process waits some time for the end of
// the stream before it stops.
func holdOpen(t *testing.T, endpoint string) {
	t.Helper()
	watch := clientOf(t, endpoint).Watch(t.Context(), "k", clientv3.WithCreatedNotify())
	select {
	case <-watch:
	case <-time.After(30 * time.Second):
		t.Fatal("no watch")
	}
}

func TestDataDirInUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, endpoint := startChild(t, childOptions(t, dir))
	put(t, clientOf(t, endpoint), "k", "v")
	opts := childOptions(t, dir)
	second, err := member.NewChild(opts)
	if err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	_, err = second.Start(t.Context())
	if !errors.Is(err, member.ErrInUse) {
		t.Fatalf("got %v, want ErrInUse", err)
	}
	want := fmt.Sprintf("process %d (its store process is %d)", os.Getpid(), readLock(t, dir).PID)
	if !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not name %q", err, want)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	if left := entries(t, opts.RuntimeDir); len(left) > 0 || second.Healthy() {
		t.Errorf("left behind: %v", left)
	}
}

func TestLongDataDir(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), strings.Repeat("d", 100), strings.Repeat("e", 200))
	child, endpoint := startChild(t, childOptions(t, dir))
	put(t, clientOf(t, endpoint), "k", "v")
	if !child.Healthy() {
		t.Error("not healthy")
	}
}

func TestChildStartFails(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*member.ChildOptions)
		want   string
	}{
		"no executable": {func(o *member.ChildOptions) { o.Executable = "/no/such/portolan" }, "no such file"},
		"panic":         {func(o *member.ChildOptions) { o.Env = []string{roleVar + "=panic"} }, "panic: the disk is on fire"},
		"not a child": {func(o *member.ChildOptions) {
			o.Executable, o.Args = "/bin/sh", []string{"-c", "echo no such command >&2; exit 3"}
		}, "exit status 3: no such command"},
		"file as data dir": {func(o *member.ChildOptions) { o.DataDir = filepath.Join(file, "dir") }, file},
		"read-only":        {func(o *member.ChildOptions) { o.DataDir = "/proc/portolan" }, "data directory /proc/portolan"},
		"no runtime dir":   {func(o *member.ChildOptions) { o.RuntimeDir = file }, "set TMPDIR"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := childOptions(t, t.TempDir())
			test.change(&opts)
			child, err := member.NewChild(opts)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = child.Start(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q in it", err, test.want)
			}
			if opts.RuntimeDir != file {
				if left := entries(t, opts.RuntimeDir); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
			}
		})
	}
	if _, err := member.NewChild(member.ChildOptions{}); err == nil {
		t.Error("no error without a data directory")
	}
}

// TestFirstProcessIsKilled: if somebody kills the store process while the server starts,
// the server tries again, but not for ever.
func TestFirstProcessIsKilled(t *testing.T) {
	t.Parallel()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for times, want := range map[int]string{2: "", 3: "ended before it was ready: signal: killed"} {
		t.Run(fmt.Sprint(times), func(t *testing.T) {
			t.Parallel()
			opts := childOptions(t, t.TempDir())
			count := filepath.Join(t.TempDir(), "count")
			opts.Executable = "/bin/sh"
			opts.Args = []string{"-c", fmt.Sprintf(`echo >> %s; [ $(wc -l < %s) -gt %d ] || kill -9 $$; exec %s`, count, count, times, executable)}
			child, err := member.NewChild(opts)
			if err != nil {
				t.Fatal(err)
			}
			_, err = child.Start(t.Context())
			switch {
			case want == "" && err != nil:
				t.Error(err)
			case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
				t.Errorf("got %v, want %q in it", err, want)
			}
			if err == nil {
				if err := child.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// An etcd hangs in its start while another etcd has its files locked.
func TestStopWhileStarting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	startMember(t, member.Options{DataDir: dir}).Close()
	db, err := os.OpenFile(filepath.Join(dir, "etcd", "member", "snap", "db"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := unix.Flock(int(db.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}

	opts := childOptions(t, dir)
	child, err := member.NewChild(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started := make(chan error, 1)
	go func() {
		_, err := child.Start(ctx)
		started <- err
	}()
	var store holder
	eventually(t, "a store process that has our lock", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "portolan.lock"))
		if len(b) > 0 {
			store = readLock(t, dir)
		}
		return store.PID != 0
	})
	cancel()
	begin := time.Now()
	if err := <-started; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	if !processGone(store.PID) || child.Healthy() {
		t.Error("the store process is still there")
	}
	if left := entries(t, opts.RuntimeDir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestStopAtOnce(t *testing.T) {
	t.Parallel()
	child, err := member.NewChild(childOptions(t, t.TempDir()))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := child.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

func TestRunChildByHand(t *testing.T) {
	err := member.RunChild(t.Context(), logger(t), func(string) {})
	if err == nil || !strings.Contains(err.Error(), "not by hand") {
		t.Errorf("got %v", err)
	}
}
