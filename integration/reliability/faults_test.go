package reliability_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/portolan-mesh/portolan/integration/reliability"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// harm is a fault during a run. do ends the fault before it returns.
type harm struct {
	name string
	do   func(ctx context.Context, r *rig) error
	// prepare is called before anything runs.
	prepare func(r *rig) error
	args    []string // for every server of the run
	// store means that the fault affects the store. It may happen at the same time as one of a
	// server, since a server can start meanwhile.
	store bool
	// slow means that it takes too long for a short run.
	slow bool
	// root means that the user must be allowed to mount file systems.
	root bool
}

// The faults for any topology.
var toServers = []harm{
	{name: "kill-server", do: killServer},
	{name: "pause-server", do: pauseServer},
	{name: "slow-consumers", do: slowConsumers},
}

// toEmbedded are the faults for a server with its own store.
var toEmbedded = slices.Concat(toServers, []harm{
	{name: "kill-store", store: true, do: killStore},
	{name: "kill-everything", do: killEverything},
	{name: "pause-store", do: pauseStore},
	{name: "compact-behind", do: compactBehind},
	{name: "compact-again-and-again", do: compactAgainAndAgain},
	{name: "full-disk", do: fullDisk, prepare: smallDisk, slow: true, root: true},
	{name: "quota", store: true, do: useQuota, args: []string{"--store-quota", "64Mi"}, slow: true},
})

// toMembers are the faults for an etcd of three members, and for its clients.
var toMembers = slices.Concat(toServers, []harm{
	{name: "kill-leader", store: true, do: killLeader},
	{name: "kill-member", store: true, do: killMember},
	{name: "kill-members", store: true, do: killMembers},
	{name: "pause-leader", store: true, do: pauseLeader},
	{name: "isolate-leader", store: true, do: isolateLeader},
	{name: "no-quorum", store: true, do: scatter},
	{name: "cut-clients", do: cutClients},
	{name: "hold-clients", do: holdClients},
	{name: "lose-answers", do: loseAnswers},
	{name: "black-hole", do: swallowClients, slow: true},
	{name: "compact-behind", do: compactBehindCut},
	{name: "compact-again-and-again", do: compactAgainAndAgain},
	{name: "lose-member", store: true, do: loseMember},
})

// longRun is the duration of a run that has time for slow faults.
const longRun = 40 * time.Second

// toFleet are the faults for servers that form one store together.
var toFleet = slices.Concat(toServers, []harm{
	{name: "kill-store", store: true, do: killStore},
	{name: "kill-machine", do: killMachine},
	{name: "kill-everything", do: killEverything},
	{name: "pause-store", do: pauseStore},
	{name: "compact-behind", do: compactBehind},
	{name: "compact-again-and-again", do: compactAgainAndAgain},
})

// plan draws the faults of a run from a menu: one to three for every full half minute, and at
// least once.
func plan(random *rand.Rand, menu []harm, duration time.Duration) (out []harm) {
	menu = slices.DeleteFunc(slices.Clone(menu), func(h harm) bool {
		return (h.slow && duration < longRun) || (h.root && os.Getuid() != 0)
	})
	for range max(1, duration/(30*time.Second)) {
		n := 1 + random.IntN(3)
		for _, i := range random.Perm(len(menu))[:n] {
			out = append(out, menu[i])
		}
	}
	return out
}

// suffer does the faults of a plan, spread over the time. Those of the store and those of
// servers run concurrently, each in order.
func (r *rig) suffer(ctx context.Context, plan []harm, duration time.Duration) {
	var lanes [2][]harm
	for _, h := range plan {
		lane := 0
		if h.store {
			lane = 1
		}
		lanes[lane] = append(lanes[lane], h)
	}
	var running sync.WaitGroup
	for _, lane := range lanes {
		running.Go(func() { r.sufferOne(ctx, lane, duration) })
	}
	running.Wait()
}

func (r *rig) sufferOne(ctx context.Context, lane []harm, duration time.Duration) {
	gap := duration / time.Duration(3*len(lane)+1)
	for _, h := range lane {
		pass(ctx, gap/2+r.between(0, gap))
		done := reliability.Harm{Name: h.name, Start: r.now()}
		if err := h.do(ctx, r); err != nil {
			r.fail("%s: %w", h.name, err)
		}
		done.End = r.now()
		r.record(func(h *reliability.History) { h.Harm = append(h.Harm, done) })
	}
}

func (r *rig) anyServer() *server { return r.servers[r.pick(len(r.servers))] }

// between returns a random duration.
func (r *rig) between(least, most time.Duration) time.Duration {
	return least + time.Duration(r.pick(int(most-least)))
}

// pick returns a random number below n.
func (r *rig) pick(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.random.IntN(n)
}

func killServer(ctx context.Context, r *rig) error {
	s := r.anyServer()
	s.suffer(true)
	defer s.suffer(false)
	s.current().Kill()
	pass(ctx, r.between(0, 500*time.Millisecond))
	s.start()
	return s.ready(ctx, 30*time.Second)
}

func pauseServer(ctx context.Context, r *rig) error {
	s := r.anyServer()
	s.suffer(true)
	defer s.suffer(false)
	s.current().Pause()
	pass(ctx, r.between(time.Second, 4*time.Second))
	s.current().Resume()
	return nil
}

// killStore kills a store process; its server starts another one.
func killStore(ctx context.Context, r *rig) error {
	s := r.anyServer()
	return s.awaitStore(ctx, s.signalStore(syscall.SIGKILL))
}

// awaitStore waits until a store process other than was answers.
func (s *server) awaitStore(ctx context.Context, was int) error {
	return await(ctx, 30*time.Second, func() error {
		if h, err := s.store(); err != nil || h.PID == was {
			return fmt.Errorf("no other store process: %w", err)
		}
		return s.r.withStore(ctx, func(ctx context.Context, c *clientv3.Client) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_, err := c.Get(ctx, "x")
			return err
		})
	})
}

// killMachine kills a server and its store at once.
func killMachine(ctx context.Context, r *rig) error { return restart(ctx, r, r.anyServer()) }

// killEverything kills all servers and their stores at once.
func killEverything(ctx context.Context, r *rig) error { return restart(ctx, r, r.servers...) }

func restart(ctx context.Context, r *rig, servers ...*server) error {
	for _, s := range servers {
		s.suffer(true)
		defer s.suffer(false)
		s.signalStore(syscall.SIGKILL)
	}
	for _, s := range servers {
		s.current().Kill()
	}
	pass(ctx, r.between(0, 500*time.Millisecond))
	for _, s := range servers {
		s.start()
	}
	for _, s := range servers {
		if err := s.ready(ctx, 30*time.Second); err != nil {
			return err
		}
	}
	return nil
}

// pauseStore stops the store process, sometimes for so long that the server gives it up.
func pauseStore(ctx context.Context, r *rig) error {
	s := r.anyServer()
	stopped := s.signalStore(syscall.SIGSTOP)
	pass(ctx, r.between(time.Second, 7*time.Second))
	if h, err := s.store(); err == nil && h.PID == stopped {
		s.signalStore(syscall.SIGCONT)
	}
	return s.awaitStore(ctx, 0)
}

// compactBehind changes the store while the server does not read, and compacts these changes
// away. The server has to list again.
func compactBehind(ctx context.Context, r *rig) error {
	s := r.anyServer()
	s.suffer(true)
	defer s.suffer(false)
	s.current().Pause()
	defer s.current().Resume()
	r.leaveBehind(ctx)
	s.signalStore(syscall.SIGKILL) // together with what it had sent
	s.current().Resume()
	return s.awaitStore(ctx, 0)
}

// leaveBehind changes the store and compacts it up to the last change. If the store is down, it
// does nothing.
func (r *rig) leaveBehind(ctx context.Context) {
	// More than an unread connection can buffer.
	if err := r.writeDirectly(ctx, 300); err != nil {
		return
	}
	head := r.head(ctx)
	err := await(ctx, 5*time.Second, func() error {
		if at := r.truth.at(); at < head {
			return fmt.Errorf("the truth is known up to %d, not %d", at, head)
		}
		return nil
	})
	if err == nil {
		_ = r.compact(ctx)
	}
}

// compactAgainAndAgain compacts the history as soon as it is made, while a server is stopped
// repeatedly for moments.
func compactAgainAndAgain(ctx context.Context, r *rig) error {
	s := r.anyServer()
	s.suffer(true)
	defer s.suffer(false)
	for range 20 {
		s.current().Pause()
		pass(ctx, 50*time.Millisecond)
		_ = r.compact(ctx) // fails if the store is down; then there is no race
		s.current().Resume()
		pass(ctx, 50*time.Millisecond)
	}
	return nil
}

// smallDisk gives the server's data a file system of its own.
func smallDisk(r *rig) error {
	dir := filepath.Join(r.dir, "p0")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=768m,mode=0700"); err != nil {
		return fmt.Errorf("a small file system needs root: %w", err)
	}
	r.t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			r.t.Error(err)
		}
	})
	return nil
}

// fullDisk fills the store's file system, and later frees it.
func fullDisk(ctx context.Context, r *rig) error {
	s := r.servers[0]
	name := filepath.Join(s.dataDir, "filler")
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	for _, size := range []int{1 << 20, 4 << 10} {
		for err = nil; err == nil; {
			_, err = file.Write(make([]byte, size))
		}
	}
	if err := file.Close(); err != nil {
		return err
	}
	degraded := await(ctx, 20*time.Second, func() error {
		report, err := get(ctx, s.url()+"/readyz")
		if err == nil && !strings.Contains(report, "degraded") {
			err = errors.New(report)
		}
		return err
	})
	pass(ctx, r.between(time.Second, 4*time.Second))
	if err := os.Remove(name); err != nil {
		return err
	}
	if degraded != nil {
		return fmt.Errorf("readiness does not say that the store is away: %w", degraded)
	}
	return s.awaitStore(ctx, 0)
}

// useQuota writes until etcd refuses more: the server makes room.
func useQuota(ctx context.Context, r *rig) error {
	pad := strings.Repeat("x", 1<<20)
	full := false
	for i := 0; i < 200 && !full; i++ {
		_ = r.withStore(ctx, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Put(ctx, "/another/program", pad)
			full = err != nil && strings.Contains(err.Error(), "database space exceeded")
			return err
		})
	}
	if !full {
		return errors.New("the quota is never used up")
	}
	return await(ctx, 30*time.Second, func() error {
		return r.withStore(ctx, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Put(ctx, "/another/program", "")
			return err
		})
	})
}

// slowConsumers watches and subscribes, and then reads nothing.
func slowConsumers(ctx context.Context, r *rig) error {
	s := r.anyServer()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var watches []net.Conn
	for range 5 {
		c, err := net.DialTimeout("tcp", s.api, time.Second)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		_ = c.(*net.TCPConn).SetReadBuffer(1024)
		fmt.Fprintf(c, "GET /apis/networking.istio.io/v1/serviceentries?watch=true HTTP/1.1\r\nHost: x\r\n\r\n")
		watches = append(watches, c)
	}
	connection, err := grpc.NewClient(s.xds, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithInitialWindowSize(65535))
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	for range 5 {
		stream, err := discoveryv3.NewAggregatedDiscoveryServiceClient(connection).StreamAggregatedResources(ctx)
		if err != nil {
			return err
		}
		_ = stream.Send(&discoveryv3.DiscoveryRequest{
			Node: xdstest.NewNode("router", "10.255.0.2", "slow", "group", nil), TypeUrl: xdstest.ClusterType,
		})
	}
	pass(ctx, r.between(3*time.Second, 6*time.Second))
	if len(watches) == 0 {
		return errors.New("nobody watches")
	}
	return nil
}
