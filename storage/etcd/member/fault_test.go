package member_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/portolan-mesh/portolan/storage/etcd/member"

	"github.com/portolan-mesh/portolan/storage/logtest"
)

// TestHungChildIsReplaced pauses the store process: once that is noticed, writes fail at
// once, and another process replaces it.
func TestHungChildIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opts := childOptions(t, dir)
	opts.ProbeInterval, opts.ProbeTimeout = 20*time.Millisecond, time.Second
	opts.StopTimeout = time.Second
	child, _ := startChild(t, opts)
	client, err := child.Dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	put(t, client, "k", "v")
	store := readLock(t, dir)
	kill(t, store.PID, syscall.SIGSTOP)
	stopped := time.Now()
	eventually(t, "it is noticed", func() bool { return !child.Healthy() })
	noticed := time.Since(stopped)
	begin := time.Now()
	_, err = client.Put(t.Context(), "k", "lost")
	if took := time.Since(begin); err == nil || took > time.Second || !strings.Contains(err.Error(), "has not answered for") {
		t.Errorf("a write while nothing answers: %v, in %s", err, took)
	}
	if err := child.Ready(); err == nil || !strings.Contains(err.Error(), "has not answered for") {
		t.Errorf("Ready: %v", err)
	}
	eventually(t, "another process", func() bool { return child.Healthy() && readLock(t, dir).PID != store.PID })
	t.Logf("noticed after %s, replaced after %s", noticed, time.Since(stopped))
	if v := get(t, client, "k"); v != "v" {
		t.Errorf("k is %q: the write that failed was done", v)
	}
	if n := metric(t, child, "portolan_store_restarts_total"); n != 1 {
		t.Errorf("%v restarts", n)
	}
}

// TestHungWhileStarting: a process that never becomes ready is killed.
func TestHungWhileStarting(t *testing.T) {
	t.Parallel()
	opts := childOptions(t, t.TempDir())
	opts.Executable, opts.Args = "/bin/sh", []string{"-c", "exec sleep 60"}
	opts.StartTimeout, opts.StopTimeout = 100*time.Millisecond, 100*time.Millisecond
	child, err := member.NewChild(opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := child.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "not ready within 100ms") {
		t.Errorf("got %v", err)
	}
}

// TestStopOfHungChild: Close takes a bounded time.
func TestStopOfHungChild(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	child, err := member.NewChild(childOptions(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := child.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- child.Run(ctx) }()
	kill(t, readLock(t, dir).PID, syscall.SIGSTOP)
	begin := time.Now()
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
	startChild(t, childOptions(t, dir)) // works only if the lock is free
}

// TestCrashLoopIsNoStorm: a process that cannot start is restarted at growing intervals,
// and the log does not repeat the reason.
func TestCrashLoopIsNoStorm(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	opts := childOptions(t, dir)
	opts.BackoffMin, opts.BackoffMax = 10*time.Millisecond, 200*time.Millisecond
	journal := &logtest.Log{}
	opts.Logger = slog.New(slog.NewTextHandler(journal, nil))
	child, endpoint := startChild(t, opts)
	put(t, clientOf(t, endpoint), "k", "v")
	client, err := child.Dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	// Another process takes the lock at the moment when the store process dies.
	release := stealLock(t, dir)
	eventually(t, "some attempts", func() bool { return metric(t, child, "portolan_store_restarts_total") >= 4 })
	if n := journal.Count("cannot be started"); n != 1 {
		t.Errorf("the log tells %d times why", n)
	}
	err = child.Ready()
	for _, words := range []string{"is down for", "is being restarted", "data directory in use"} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("Ready does not say %q: %v", words, err)
		}
	}
	for name, call := range map[string]func(context.Context) error{
		"write": func(ctx context.Context) error { _, err := client.Put(ctx, "k", "w"); return err },
		"read":  func(ctx context.Context) error { _, err := client.Get(ctx, "k"); return err },
	} {
		begin := time.Now()
		err := call(t.Context())
		took := time.Since(begin)
		if err == nil || !strings.Contains(err.Error(), "data directory in use") || took > 20*time.Second {
			t.Errorf("a %s while the store is down: %v, in %s", name, err, took)
		}
		t.Logf("a %s fails after %s", name, took.Round(time.Millisecond))
	}
	release()
	eventually(t, "recovery", child.Healthy)
	if v := get(t, client, "k"); v != "v" {
		t.Errorf("k is %q", v)
	}
}

// stealLock kills the store process and takes its lock before another can.
func stealLock(t *testing.T, dir string) (release func()) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, "portolan.lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	store := readLock(t, dir)
	kill(t, store.PID, syscall.SIGKILL)
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if now := readLock(t, dir); now.PID != store.PID {
		t.Fatalf("process %d was faster", now.PID)
	}
	return func() { file.Close() }
}

// TestFullFileSystem fills the file system under a store: the store dies, its next start
// fails with the numbers, and it is back when there is space.
func TestFullFileSystem(t *testing.T) {
	t.Parallel()
	dir := tmpfs(t, 160)
	opts := childOptions(t, filepath.Join(dir, "data"))
	child, endpoint := startChild(t, opts)
	client := clientOf(t, endpoint)
	put(t, client, "k", "v")
	filler := fill(t, dir)
	acknowledged := 0
	eventually(t, "the store dies of the full file system", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := client.Put(ctx, fmt.Sprintf("full%06d", acknowledged), strings.Repeat("v", 64<<10)); err == nil {
			acknowledged++
		}
		return !child.Healthy()
	})
	want := []string{"is down for", "too little free space", "MiB free of 160 MiB", "free some"}
	eventually(t, "it says why", func() bool { return containsWords(child.Ready(), want...) })
	t.Logf("after %d writes: %v", acknowledged, child.Ready())
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	eventually(t, "recovery", child.Healthy)
	answer, err := client.Get(t.Context(), "full", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || answer.Count < int64(acknowledged) {
		t.Errorf("%d of %d acknowledged writes are there, %v", answer.Count, acknowledged, err)
	}
	put(t, client, "k", "w")
}

// TestTooLittleSpaceToStart: the start is refused before etcd has written anything.
func TestTooLittleSpaceToStart(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(tmpfs(t, 72), "data")
	child, err := member.NewChild(childOptions(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	_, err = child.Start(t.Context())
	if !errors.Is(err, member.ErrNoSpace) || !containsWords(err, dir, "72 MiB free of 72 MiB", "needs 139 MiB") {
		t.Errorf("got %v", err)
	}
	if left := entries(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func containsWords(err error, words ...string) bool {
	for _, w := range words {
		if err == nil || !strings.Contains(err.Error(), w) {
			return false
		}
	}
	return true
}

// tmpfs mounts a file system of some MiB.
func tmpfs(t *testing.T, mib int) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0700", mib)); err != nil {
		t.Skipf("SKIPPED, AND NOTHING WAS TESTED: a full file system needs a small one to be mounted, which takes root: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill leaves no space on a file system, and returns the file that fills it.
func fill(t *testing.T, dir string) string {
	t.Helper()
	name := filepath.Join(dir, "filler")
	file, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, size := range []int{1 << 20, 4096} {
		for err = nil; err == nil; {
			_, err = file.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
	return name
}

// TestDamage starts on data that is damaged in many ways. Either no acknowledged write
// is missing, or the error names what is damaged, where, and what to do.
func TestDamage(t *testing.T) {
	t.Parallel()
	const keys = 1500
	whole := killedStore(t, keys)
	const log, db = "wal/*.wal", "snap/db"
	for name, test := range map[string]struct {
		file   string
		damage func(*os.File) error
		what   string // what the error names as damaged; empty if the start succeeds
	}{
		"none":                       {log, func(*os.File) error { return nil }, ""},
		"log: bit at the begin":      {log, flip(20), "log"},
		"log: length at the begin":   {log, flip(0), "log"},
		"log: bit in the middle":     {log, flip(400_000), "log"},
		"log: bit near the end":      {log, flip(1_500_000), "log"},
		"log: cut off":               {log, cut(1_500_001), "log"},
		"log: end zeroed":            {log, zero(1_500_160, 62_000_000), "log"},
		"log: empty":                 {log, cut(0), "log"},
		"snapshot: bit":              {"snap/*.snap", flip(50), ""},
		"database: first page":       {db, zero(0, 4096), "either"}, // the second page may be newer
		"database: both first pages": {db, zero(0, 8192), "database"},
		"database: cut off":          {db, cut(100_000), "database"},
		"database: empty":            {db, cut(0), "database"},
		"database: pages zeroed":     {db, zero(40_960, 400_000), "database"},
		"database: headers of pages": {db, everyPage(9), "database"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := copyDir(t, whole)
			damage(t, filepath.Join(dir, "etcd", "member", test.file), test.damage)
			child, err := member.NewChild(childOptions(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			endpoint, err := child.Start(t.Context())
			if err == nil {
				defer child.Close()
				answer, getErr := clientOf(t, endpoint).Get(t.Context(), "k", clientv3.WithPrefix(), clientv3.WithCountOnly())
				if getErr != nil || answer.Count != keys || test.what != "" && test.what != "either" {
					t.Errorf("it started, with %v (%v)", answer, getErr)
				}
				return
			}
			if test.what == "" || !errors.Is(err, member.ErrDamaged) ||
				!containsWords(err, dir, "its "+strings.Replace(test.what, "either", "database", 1), "move "+dir+" away", "portolan store restore FILE --data-dir "+dir) || len(err.Error()) > 1500 {
				t.Errorf("got %v", err)
			}
			t.Log(strings.ReplaceAll(err.Error(), dir, "DIR"))
		})
	}
}

// killedStore returns a data directory with some keys of 1 KB, as kill -9 leaves it.
func killedStore(t *testing.T, keys int) (dir string) {
	t.Helper()
	dir = t.TempDir()
	s := startServer(t, dir, shortDir(t))
	client := clientOf(t, s.endpoint)
	for i := range keys {
		put(t, client, fmt.Sprintf("k%05d", i), strings.Repeat("v", 1000))
	}
	client.Close()
	store := readLock(t, dir)
	s.kill()
	_ = syscall.Kill(store.PID, syscall.SIGKILL)
	eventually(t, "end of the store process", func() bool { return processGone(store.PID) })
	return dir
}

// TestTornEnd: a log may end in the middle of a write, as after a power failure. That is
// no damage: the write was never acknowledged.
func TestTornEnd(t *testing.T) {
	t.Parallel()
	dir := killedStore(t, 100)
	damage(t, filepath.Join(dir, "etcd", "member", "wal", "*.wal"), func(f *os.File) error {
		// A length without the record that it belongs to.
		_, err := f.WriteAt([]byte{0x70}, endOfLog(t, f))
		return err
	})
	_, endpoint := startChild(t, childOptions(t, dir))
	answer, err := clientOf(t, endpoint).Get(t.Context(), "k", clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil || answer.Count != 100 {
		t.Errorf("%v, %v", answer, err)
	}
}

// endOfLog returns where the reserved zeroes of a log begin.
func endOfLog(t *testing.T, f *os.File) int64 {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	end := int64(len(strings.TrimRight(string(b), "\x00")))
	return (end + 7) / 8 * 8 // records are padded to 8 bytes
}

func damage(t *testing.T, pattern string, do func(*os.File) error) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no %s: %v", pattern, err)
	}
	f, err := os.OpenFile(files[len(files)-1], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := do(f); err != nil {
		t.Fatal(err)
	}
}

// flip changes one bit.
func flip(at int64) func(*os.File) error {
	return func(f *os.File) error {
		b := []byte{0}
		if _, err := f.ReadAt(b, at); err != nil {
			return err
		}
		b[0] ^= 0x10
		_, err := f.WriteAt(b, at)
		return err
	}
}

func cut(at int64) func(*os.File) error { return func(f *os.File) error { return f.Truncate(at) } }

func zero(from, n int64) func(*os.File) error {
	return func(f *os.File) error { _, err := f.WriteAt(make([]byte, n), from); return err }
}

// everyPage changes a bit in each page but the first two.
func everyPage(at int64) func(*os.File) error {
	return func(f *os.File) error {
		for page := int64(8192); page < 1_600_000; page += 4096 {
			if err := flip(page + at)(f); err != nil {
				return err
			}
		}
		return nil
	}
}

// copyDir copies a data directory with its permissions.
func copyDir(t *testing.T, from string) string {
	t.Helper()
	target := t.TempDir()
	if err := os.CopyFS(target, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(target, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return os.Chmod(path, 0o700)
	})
	if err != nil {
		t.Fatal(err)
	}
	return target
}

// metric returns the value of a metric without labels.
func metric(t *testing.T, c prometheus.Collector, name string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue() + f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("no metric %s", name)
	return 0
}
