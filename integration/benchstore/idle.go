package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
)

// plainArg makes this program run an embedded etcd with default settings, on a unix socket in
// the directory that follows.
const plainArg = "etcd"

// runPlain runs that etcd until its standard input ends. It prints a word when it is ready.
func runPlain(dir string) error {
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel = filepath.Join(dir, "data"), "error"
	socket := url.URL{Scheme: "unix", Path: filepath.Join(dir, "etcd.sock")}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{socket}, []url.URL{socket}
	cfg.ListenPeerUrls = nil
	etcd, err := embed.StartEtcd(cfg)
	if err != nil {
		return err
	}
	defer etcd.Close()
	select {
	case <-etcd.Server.ReadyNotify():
	case err := <-etcd.Err():
		return err
	}
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

const (
	idleSettle = 10 * time.Second // after which nothing of the start goes on
	idleTime   = 30 * time.Second
	restarts   = 5
)

// measureIdle compares the idle cost of a server without proxies, and its store process, with
// that of an etcd with default settings.
func measureIdle(ctx context.Context, o options, r *report) (err error) {
	if o.server == "" {
		r.note("idle: not measured, no server was named with -server")
		return nil
	}
	dir, err := os.MkdirTemp(o.dir, "benchstore")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	plain, err := startIdle(ctx, "ready", self, plainArg, dir)
	if err != nil {
		return err
	}
	defer plain.end()
	serve := []string{o.server, "serve", "--data-dir", filepath.Join(dir, "mesh"), "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0"}
	var took []time.Duration
	var server *idleProcess
	for range restarts {
		begun := time.Now()
		if server, err = startIdle(ctx, "msg=ready", serve[0], serve[1:]...); err != nil {
			return err
		}
		took = append(took, time.Since(begun))
		if len(took) < restarts {
			server.end()
		}
	}
	defer server.end()
	r.add(line{what: "restart of a server to ready, median", portolan: median(took[1:]).Round(time.Millisecond).String()})
	return compareIdle(ctx, r, plain, server)
}

// compareIdle measures the processor time of all three processes over the same period.
func compareIdle(ctx context.Context, r *report, plain, server *idleProcess) error {
	store, err := server.store()
	if err != nil {
		return err
	}
	processes := []int{plain.pid(), store, server.pid()}
	if err := pause(ctx, idleSettle); err != nil {
		return err
	}
	before, err := processorTimes(processes)
	if err != nil {
		return err
	}
	if err := pause(ctx, idleTime); err != nil {
		return err
	}
	used, err := processorTimes(processes)
	if err != nil {
		return err
	}
	for n := range used {
		used[n] -= before[n]
	}
	share := func(n int) string { return fmt.Sprintf("%.2f %% of a core", 100*used[n].Seconds()/idleTime.Seconds()) }
	r.add(line{what: "idle: the store process", plain: share(0), portolan: share(1),
		ratio: used[1].Seconds() / used[0].Seconds(), limit: limit{ratio: 1.3}})
	r.add(line{what: "idle: the server, beside the same etcd", plain: share(0), portolan: share(2),
		ratio: used[2].Seconds() / used[0].Seconds(), limit: limit{ratio: 0.3}})
	return nil
}

// idleProcess is a running process that has reported that it is ready.
type idleProcess struct {
	cmd   *exec.Cmd
	stdin io.Closer
	said  *bytes.Buffer
}

// startIdle starts a process and waits until it has printed a word.
func startIdle(ctx context.Context, word, name string, args ...string) (*idleProcess, error) {
	p := &idleProcess{cmd: exec.CommandContext(ctx, name, args...), said: &bytes.Buffer{}}
	heard := &wordWaiter{word: []byte(word), said: p.said, found: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = heard, heard
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	select {
	case <-heard.found:
		return p, nil
	case <-time.After(time.Minute):
		p.end()
		return nil, fmt.Errorf("%s %s was not ready within a minute: %s", name, strings.Join(args, " "), p.said)
	}
}

// wordWaiter is a writer that waits for a word.
type wordWaiter struct {
	word  []byte
	said  *bytes.Buffer
	found chan struct{}
	done  bool
}

// Write implements io.Writer.
func (l *wordWaiter) Write(text []byte) (int, error) {
	if !l.done {
		l.said.Write(text)
		if bytes.Contains(l.said.Bytes(), l.word) {
			l.done = true
			close(l.found)
		}
	}
	return len(text), nil
}

func (p *idleProcess) pid() int { return p.cmd.Process.Pid }

var storePID = regexp.MustCompile(`store process is ready" pid=(\d+)`)

// store returns the pid of a server's store process, from the server's output.
func (p *idleProcess) store() (int, error) {
	found := storePID.FindSubmatch(p.said.Bytes())
	if found == nil {
		return 0, fmt.Errorf("the server names no store process: %s", p.said)
	}
	return strconv.Atoi(string(found[1]))
}

// end ends the process and waits for it.
func (p *idleProcess) end() {
	_ = p.stdin.Close()
	_ = p.cmd.Process.Signal(os.Interrupt)
	_ = p.cmd.Wait()
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func processorTimes(pids []int) (used []time.Duration, err error) {
	for _, pid := range pids {
		one, err := processorTime(pid)
		if err != nil {
			return nil, err
		}
		used = append(used, one)
	}
	return used, nil
}

// processorTime returns the processor time that all threads of a process have used.
func processorTime(pid int) (used time.Duration, err error) {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		return 0, fmt.Errorf("process %d does not say what it uses: %w", pid, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended meanwhile
		}
		fields := strings.Fields(string(text))
		n, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return 0, err
		}
		used += time.Duration(n)
	}
	return used, nil
}
