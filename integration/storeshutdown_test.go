package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
)

// shutdown is how long a server may take to end, in any state.
const shutdown = 10 * time.Second

// TestStoreShutdown ends servers in states in which that is hard. They end in time, with exit
// code 0, and the next server can use the data directory.
func TestStoreShutdown(t *testing.T) {
	for name, reach := range map[string]func(*testing.T, string) *process{
		"starting":               stateStarting,
		"waiting for the lock":   stateLocked,
		"store hung":             stateHung,
		"store down, disk full":  stateDiskFull,
		"compacting":             stateCompacting,
		"store killed just now":  stateKilled,
		"in the middle of start": stateAtOnce,
		"written to":             stateWritten,
		"asked by halves":        stateAskedByHalves,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			p := reach(t, dir)
			begun := time.Now()
			if err := p.terminate(t); err != nil {
				t.Errorf("it ended with %v", err)
			}
			took := time.Since(begun)
			t.Logf("ended after %s", took.Round(time.Millisecond))
			if late(took, shutdown) {
				t.Errorf("it took %s to end", took)
			}
			if log := p.output(); strings.Contains(log, "etcd did not stop") {
				t.Errorf("its store did not end by itself:\n%s", p.tail())
			}
		})
	}
}

// serveOn starts a server without waiting for it.
func serveOn(t *testing.T, dir string) *process {
	t.Helper()
	return start(t, "portolan", binary, "serve", "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0", "--data-dir", dir)
}

// startsAgain checks, at the end of the test, that a server starts on the directory.
func startsAgain(t *testing.T, dir string) {
	t.Cleanup(func() {
		if !t.Failed() {
			startServer(t, serverOptions{dataDir: dir})
		}
	})
}

// usedDataDir makes a data directory that a server has used.
func usedDataDir(t *testing.T, dir string) {
	t.Helper()
	s := startServer(t, serverOptions{dataDir: dir})
	s.apply(newShop(t).all(50, 50))
	if err := s.process.terminate(t); err != nil {
		t.Fatal(err)
	}
	startsAgain(t, dir)
}

// holdLock keeps a file locked until the test ends, as another process would.
func holdLock(t *testing.T, file string) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
}

// stateStarting has an etcd that waits for its files.
func stateStarting(t *testing.T, dir string) *process {
	usedDataDir(t, dir)
	holdLock(t, filepath.Join(dir, "etcd", "member", "snap", "db"))
	p := serveOn(t, dir)
	eventually(t, "its store process has the lock", func() error {
		h, err := holderOf(dir)
		if err == nil && h.ParentPID != p.pid() {
			err = fmt.Errorf("it is that of %+v", h)
		}
		return err
	})
	return p
}

// stateLocked has a store process that waits for a lock, whose holder has not written who it
// is.
func stateLocked(t *testing.T, dir string) *process {
	usedDataDir(t, dir)
	holdLock(t, filepath.Join(dir, "portolan.lock"))
	p := serveOn(t, dir)
	eventually(t, "there is a store process", func() error {
		_, err := childOf(p.pid())
		return err
	})
	return p
}

// stateAtOnce ends the server as early as possible.
func stateAtOnce(t *testing.T, dir string) *process {
	usedDataDir(t, dir)
	p := serveOn(t, dir)
	eventually(t, "there is a store process", func() error {
		_, err := childOf(p.pid())
		return err
	})
	return p
}

// childOf returns a child of a process.
func childOf(pid int) (string, error) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return "", err
	}
	for _, task := range tasks {
		if text, err := os.ReadFile(task); err == nil && len(text) > 0 {
			return string(text), nil
		}
	}
	return "", errors.New("it has no child")
}

// stateWritten has clients that write as fast as they can, and one that watches.
func stateWritten(t *testing.T, dir string) *process {
	s := startServer(t, serverOptions{dataDir: dir})
	startsAgain(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	written := make(chan struct{}, 1)
	var clients sync.WaitGroup
	t.Cleanup(func() { cancel(); clients.Wait() })
	follow := func(method, url, body string, each func()) error {
		r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		each()
		_, err = io.Copy(io.Discard, answer.Body)
		return err
	}
	entries := s.url("/apis/networking.istio.io/v1/namespaces/shop/serviceentries")
	padding := strings.Repeat("x", 200<<10)
	for c := range 8 {
		clients.Go(func() {
			for i := 0; ; i++ {
				object := fmt.Sprintf(`{"apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
					"metadata": {"name": "s%d-%d", "annotations": {"padding": "%s"}},
					"spec": {"hosts": ["s%d-%d.shop.test"], "resolution": "STATIC", "ports": [{"number": 80, "name": "http", "protocol": "HTTP"}]}}`, c, i, padding, c, i)
				if follow(http.MethodPost, entries, object, func() {}) != nil {
					return // the server has ended
				}
				select {
				case written <- struct{}{}:
				default:
				}
			}
		})
	}
	watched := make(chan struct{})
	clients.Go(func() { _ = follow(http.MethodGet, entries+"?watch=true", "", func() { close(watched) }) })
	<-watched
	for range 20 {
		<-written
	}
	return s.process
}

// stateAskedByHalves has a client that does not complete its request.
func stateAskedByHalves(t *testing.T, dir string) *process {
	s := startServer(t, serverOptions{dataDir: dir})
	startsAgain(t, dir)
	c, err := net.Dial("tcp", s.api)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, "POST /apis/networking.istio.io/v1/namespaces/shop/serviceentries HTTP/1.1\r\n"+
		"Host: portolan\r\nContent-Type: application/json\r\nContent-Length: 1000\r\nExpect: 100-continue\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err != nil { // it waits for the rest of the request
		t.Fatal(err)
	}
	return s.process
}

func stateHung(t *testing.T, dir string) *process {
	s := startServer(t, serverOptions{dataDir: dir})
	startsAgain(t, dir)
	if err := syscall.Kill(storeOf(t, dir), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return s.process
}

func stateKilled(t *testing.T, dir string) *process {
	s := startServer(t, serverOptions{dataDir: dir})
	startsAgain(t, dir)
	if err := syscall.Kill(storeOf(t, dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	return s.process
}

func stateDiskFull(t *testing.T, _ string) *process {
	disk := smallFileSystem(t, 160)
	dir := filepath.Join(disk, "data")
	s := startServer(t, serverOptions{dataDir: dir})
	startsAgain(t, dir)
	filler := fillUp(t, disk)
	t.Cleanup(func() { _ = os.Remove(filler) }) // before the next start
	if err := syscall.Kill(storeOf(t, dir), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.expectDegraded("too little free space")
	return s.process
}

// stateCompacting has an etcd that compacts many revisions and defragments its database.
func stateCompacting(t *testing.T, dir string) *process {
	s := startServer(t, serverOptions{dataDir: dir})
	startsAgain(t, dir)
	client := openStore(t, dir)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	puts := make([]clientv3.Op, 4000)
	for i := range puts {
		puts[i] = clientv3.OpPut(fmt.Sprintf("/other/%05d", i), strings.Repeat("v", 1<<10))
	}
	var revision int64
	for range 20 {
		answer, err := client.Txn(ctx).Then(puts...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		revision = answer.Header.Revision
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = client.Compact(ctx, revision, clientv3.WithCompactPhysical()) // neither needs to finish
		_, _ = client.Defragment(ctx, client.Endpoints()[0])
	}()
	t.Cleanup(func() { cancel(); <-ended; _ = client.Close() })
	return s.process
}
