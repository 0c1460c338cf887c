package reliability_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/integration/processtest"
	"github.com/portolan-mesh/portolan/integration/reliability"
)

// rig is everything that runs in one run, and its records.
type rig struct {
	t       testing.TB
	seed    uint64
	binary  string
	dir     string // of the servers' data
	topo    topology
	begun   time.Time
	truth   *teller
	values  atomic.Int64 // the last value written
	servers []*server
	cluster *cluster // nil if each server has its own store

	mu      sync.Mutex // guards the fields below
	history reliability.History
	trouble []error    // with the run itself
	random  *rand.Rand // for faults; every client has its own
}

// topology is a way to run Portolan, with the faults that it allows.
type topology struct {
	name    string
	servers int
	members bool // on an etcd of three members
	fleet   bool // each has a member of one store
	args    []string
	harm    []harm
}

// server is a replica: a `portolan serve`, in one process after the other.
type server struct {
	r       *rig
	name    string
	dataDir string
	links   []*processtest.Link // to the members
	api     string              // host:port, always the same
	xds     string
	args    []string
	client  string // host:port of its member, in a fleet

	mu          sync.Mutex // guards the fields below
	process     *processtest.Process
	incarnation int
	unwell      bool // a fault affects it: it need not keep its promises
	logs        map[string]*processtest.Process
}

func newRig(t testing.TB, topo topology, seed uint64, binary string, prepare ...func(*rig) error) *rig {
	t.Helper()
	// Unix sockets of the store need short paths.
	dir, err := os.MkdirTemp("", "reliability-")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, seed: seed, random: randomOf(seed, 0), binary: binary, dir: dir, topo: topo, begun: time.Now()}
	r.history = reliability.History{Seed: seed, Topology: topo.name, Promises: promises}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the data is kept in %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})
	for _, f := range prepare {
		if err := f(r); err != nil {
			t.Fatal(err)
		}
	}
	if topo.members {
		r.cluster = newCluster(t, dir)
	}
	for i := range topo.servers {
		s := &server{
			r: r, name: fmt.Sprint("p", i), dataDir: filepath.Join(dir, fmt.Sprint("p", i)), args: topo.args,
			api: processtest.Local(processtest.FreePort(t)), xds: processtest.Local(processtest.FreePort(t)),
			logs: map[string]*processtest.Process{},
		}
		for _, m := range r.members() {
			s.links = append(s.links, processtest.NewLink(t, m.config.Client, nil))
		}
		r.servers = append(r.servers, s)
	}
	if topo.fleet {
		r.gather()
	}
	for _, s := range r.servers {
		s.start()
	}
	for _, s := range r.servers {
		if err := s.ready(t.Context(), 30*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// gather makes each server run one member of a common store.
func (r *rig) gather() {
	var initial []string
	peers := map[*server]string{}
	for _, s := range r.servers {
		peers[s] = "http://" + processtest.Local(processtest.FreePort(r.t))
		s.client = processtest.Local(processtest.FreePort(r.t))
		initial = append(initial, s.name+"="+peers[s])
	}
	for _, s := range r.servers {
		s.args = append(s.args[:len(s.args):len(s.args)], "--store-name", s.name, "--store-peer-url", peers[s],
			"--store-client-url", "http://"+s.client, "--store-initial-cluster", strings.Join(initial, ","))
	}
}

// randomOf returns a random source derived from a seed, a different one for each number.
func randomOf(seed, number uint64) *rand.Rand {
	const spread = 0x9e3779b97f4a7c15 // otherwise, neighbouring numbers begin alike
	return rand.New(rand.NewPCG((seed+1)*spread, (number+1)*spread))
}

// promises are the bounds that a run checks. They leave room for a busy machine, on which
// processes wait for a core.
var promises = reliability.Promises{
	Converge: 10 * time.Second, Fail: 12 * time.Second, Wait: 6 * time.Second, Newcomer: 8 * time.Second,
	End: 10 * time.Second, Linear: 30 * time.Second,
}

func (r *rig) members() []*etcdMember {
	if r.cluster == nil {
		return nil
	}
	return r.cluster.members
}

// now returns the time of the history.
func (r *rig) now() time.Duration { return time.Since(r.begun) }

// record changes the history.
func (r *rig) record(change func(h *reliability.History)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.history)
}

// fail records that the run itself went wrong.
func (r *rig) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trouble = append(r.trouble, fmt.Errorf(format, args...))
}

// start runs the server, always on the same ports.
func (s *server) start() {
	// Without statuses, every revision that a client sees is one that a client wrote.
	args := []string{"serve", "--api-address", s.api, "--xds-address", s.xds}
	if len(s.links) > 0 {
		var endpoints []string
		for _, l := range s.links {
			endpoints = append(endpoints, l.Address())
		}
		args = append(args, "--etcd-endpoints", strings.Join(endpoints, ","))
	} else {
		args = append(args, "--data-dir", s.dataDir, "--store-retention", "1h")
		if _, err := os.Stat(s.dataDir); err != nil && slices.Contains(s.args, "--store-peer-url") {
			args = append(args, "--new-store")
		}
	}
	p := processtest.Start(s.r.t, processtest.Options{Name: s.name, Path: s.r.binary, Args: append(args, s.args...)})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process = p
	s.incarnation++
	s.logs[fmt.Sprintf("%s#%d", s.name, s.incarnation)] = p
}

// ready waits until the server is ready.
func (s *server) ready(ctx context.Context, within time.Duration) error {
	p := s.current()
	return await(ctx, within, func() error {
		switch {
		case strings.Contains(p.Output(), "msg=ready"):
			return nil
		case !p.Running():
			return fmt.Errorf("%s has ended: %w", s.name, p.Err())
		}
		return fmt.Errorf("%s is not ready", s.name)
	})
}

func (s *server) current() *processtest.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.process
}

// id names the current process.
func (s *server) id() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%s#%d", s.name, s.incarnation)
}

// suffer sets whether a fault affects the server.
func (s *server) suffer(unwell bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwell = unwell
}

func (s *server) well() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.unwell
}

func (s *server) url() string { return "http://" + s.api }

// These words in a server's log report its lists of the whole store.
var (
	listedAnew = regexp.MustCompile(`msg="listing the configuration in etcd anew".* revision=(\d+)`)
	listed     = regexp.MustCompile(`msg="configuration listed" revision=(\d+)`)
)

// lists returns the lists of the whole store by each process.
func (s *server) lists() (out []reliability.Listed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.logs {
		var after int64
		for line := range strings.Lines(p.Output()) {
			if strings.Contains(line, " store=side ") {
				continue // of the kinds beside the mesh, which nobody watches here
			}
			if found := listedAnew.FindStringSubmatch(line); found != nil {
				after, _ = strconv.ParseInt(found[1], 10, 64)
			}
			if found := listed.FindStringSubmatch(line); found != nil {
				revision, _ := strconv.ParseInt(found[1], 10, 64)
				out = append(out, reliability.Listed{Replica: id, After: after, Revision: revision})
			}
		}
	}
	return out
}

// alarming are words that no log may have: from the mirror's self-check, or from the race
// detector.
var alarming = regexp.MustCompile(`please report this|DATA RACE`)

// alarms returns the lines of the server's logs with such words.
func (s *server) alarms() (out []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, p := range s.logs {
		for line := range strings.Lines(p.Output()) {
			if alarming.MatchString(line) {
				out = append(out, id+": "+strings.TrimSpace(line))
			}
		}
	}
	return out
}

// holder is the content of a store's lock file.
type holder struct {
	PID, ParentPID int
	SocketDir      string
}

func (s *server) store() (holder, error) {
	var h holder
	text, err := os.ReadFile(filepath.Join(s.dataDir, "portolan.lock"))
	if err == nil {
		err = json.Unmarshal(text, &h)
	}
	if err == nil && (h.PID == h.ParentPID || h.SocketDir == "") {
		err = fmt.Errorf("the lock names no store process: %s", text)
	}
	return h, err
}

// signalStore sends a signal to the store process, if there is one.
func (s *server) signalStore(signal syscall.Signal) int {
	h, err := s.store()
	if err != nil {
		return 0
	}
	_ = syscall.Kill(h.PID, signal)
	return h.PID
}

// endpoints returns the current addresses of the store, without links.
func (r *rig) endpoints() ([]string, error) {
	if r.cluster != nil {
		return r.cluster.endpoints(), nil
	}
	if r.topo.fleet {
		var out []string
		for _, s := range r.servers {
			out = append(out, "http://"+s.client)
		}
		return out, nil
	}
	h, err := r.servers[0].store()
	if err != nil {
		return nil, err
	}
	return []string{"unix://" + filepath.Join(h.SocketDir, "etcd.sock")}, nil
}

// withStore calls do with a client of the store that no link affects. The store itself may be
// down.
func (r *rig) withStore(ctx context.Context, do func(ctx context.Context, client *clientv3.Client) error) error {
	endpoints, err := r.endpoints()
	if err != nil {
		return err
	}
	client, err := newClient(endpoints...)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return do(ctx, client)
}

// compact compacts the history of the store up to what the truth has.
func (r *rig) compact(ctx context.Context) error {
	revision := r.truth.at()
	return r.withStore(ctx, func(ctx context.Context, client *clientv3.Client) error {
		if _, err := client.Compact(ctx, revision); err != nil && !strings.Contains(err.Error(), "compacted") {
			return err
		}
		return nil
	})
}
