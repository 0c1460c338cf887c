package member_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
)

// The test binary also runs as the processes that the tests need: the store process, a
// server that has one, and one that dies on start.
const (
	roleVar    = "PORTOLAN_TEST_ROLE"
	dataDirVar = "PORTOLAN_TEST_DATA_DIR"
	runtimeVar = "PORTOLAN_TEST_RUNTIME_DIR"
)

func TestMain(m *testing.M) {
	logger := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	switch os.Getenv(roleVar) {
	case "":
		goleak.VerifyTestMain(m)
	case "store":
		exitWith(member.RunChild(context.Background(), logger, func(text string) {
			if text != "" {
				logger.Warn("log levels", "are", text)
			}
		}))
	case "server":
		exitWith(runServer(logger))
	case "panic":
		panic("the disk is on fire")
	}
}

func exitWith(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// runServer is a server reduced to its store: it prints the endpoint of the store and
// keeps the store alive until it is killed.
func runServer(logger *slog.Logger) error {
	child, err := member.NewChild(member.ChildOptions{
		DataDir: os.Getenv(dataDirVar), RuntimeDir: os.Getenv(runtimeVar),
		Env: []string{roleVar + "=store"}, Logger: logger,
		BackoffMin: 10 * time.Millisecond,
	})
	if err != nil {
		return err
	}
	endpoint, err := child.Start(context.Background())
	if err != nil {
		return err
	}
	fmt.Println(endpoint)
	return child.Run(context.Background())
}

// holder is the content of the lock file.
type holder struct {
	PID       int    `json:"pid"`
	ParentPID int    `json:"parentPid"`
	SocketDir string `json:"socketDir"`
}

func readLock(t *testing.T, dataDir string) holder {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dataDir, "portolan.lock"))
	if err != nil {
		t.Fatal(err)
	}
	var h holder
	if err := json.Unmarshal(b, &h); err != nil {
		t.Fatalf("lock file %q: %v", b, err)
	}
	return h
}

func childOptions(t *testing.T, dataDir string) member.ChildOptions {
	t.Helper()
	return member.ChildOptions{
		DataDir: dataDir, RuntimeDir: shortDir(t), Env: []string{roleVar + "=store"},
		Stderr: &logWriter{t: t}, Logger: logger(t), BackoffMin: 10 * time.Millisecond,
	}
}

// startChild starts a child and runs it until the test ends.
func startChild(t *testing.T, opts member.ChildOptions) (*member.Child, string) {
	t.Helper()
	child, err := member.NewChild(opts)
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := child.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- child.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ran; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return child, endpoint
}

func clientOf(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	client, err := dial.New(dial.Options{Endpoints: []string{endpoint}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func put(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := client.Put(ctx, key, value); err != nil {
		t.Fatalf("put %s: %v", key, err)
	}
}

func get(t *testing.T, client *clientv3.Client, key string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	answer, err := client.Get(ctx, key)
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	if len(answer.Kvs) == 0 {
		return ""
	}
	return string(answer.Kvs[0].Value)
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("not within 30 s: %s", what)
		case <-tick.C:
		}
	}
}

// processGone says whether a process has ended, whether or not its parent has waited for it.
func processGone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	return bytes.HasPrefix(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z"))
}

func kill(t *testing.T, pid int, signal syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, signal); err != nil {
		t.Fatalf("kill %d: %v", pid, err)
	}
}

// shortDir is a private directory with a short name: socket paths are short.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "pm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir); os.Remove(dir + ".portolan") })
	return dir
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// A server is a process with a store process of its own.
type server struct {
	cmd      *exec.Cmd
	endpoint string
}

func startServer(t *testing.T, dataDir, runtimeDir string) *server {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s := &server{cmd: exec.Command(executable)}
	s.cmd.Env = append(os.Environ(), roleVar+"=server", dataDirVar+"="+dataDir, runtimeVar+"="+runtimeDir)
	s.cmd.Stderr = &logWriter{t: t}
	s.cmd.WaitDelay = 10 * time.Second
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.kill)
	b := make([]byte, 512)
	n, err := out.Read(b)
	if err != nil {
		t.Fatalf("server said nothing: %v", err)
	}
	s.endpoint = strings.TrimSpace(string(b[:n]))
	return s
}

// kill kills the server, not its store, and waits for it.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

func logger(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(&logWriter{t: t}, nil))
}

// logWriter writes to the test's log, until the test has ended.
type logWriter struct {
	t    *testing.T
	once sync.Once
	mu   sync.Mutex
	over bool
}

func (w *logWriter) Write(b []byte) (int, error) {
	w.once.Do(func() {
		w.t.Cleanup(func() { w.mu.Lock(); w.over = true; w.mu.Unlock() })
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.t.Log(strings.TrimSpace(string(b)))
	}
	return len(b), nil
}
