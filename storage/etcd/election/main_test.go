package election_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// The test binary also runs as the processes that take part in an election.
const (
	roleVar     = "PORTOLAN_TEST_ROLE"
	endpointVar = "PORTOLAN_TEST_ENDPOINT"
	idVar       = "PORTOLAN_TEST_ID"
)

// The keys that the processes write, and their election.
const (
	fencedKey   = "/test/fenced"
	unfencedKey = "/test/unfenced"
	name        = "job"
	ttl         = election.MinTTL
)

func TestMain(m *testing.M) {
	if os.Getenv(roleVar) != "holder" {
		goleak.VerifyTestMain(m, etcdtest.LeftByMembers()...)
		return
	}
	if err := hold(os.Getenv(endpointVar), os.Getenv(idVar)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// hold takes part until its standard input ends. It says when a term begins and
// ends.
func hold(endpoint, id string) error {
	client, err := dial.New(dial.Options{Endpoints: []string{endpoint}})
	if err != nil {
		return err
	}
	defer client.Close()
	e, err := election.New(client, election.Options{Name: name, ID: id, TTL: ttl})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	return e.Run(ctx, func(term context.Context, leader *election.Leader) error {
		fmt.Println("leads", leader.Term())
		defer fmt.Println("ended", leader.Term())
		return stubborn(ctx, client, leader)
	})
}

// stubborn is the worst possible job: it goes on although its context has ended, until a
// fenced write is refused, and then writes once more without the fence.
func stubborn(ctx context.Context, client *clientv3.Client, leader *election.Leader) error {
	for n := 0; ctx.Err() == nil; n++ {
		value := fmt.Sprint(leader.Term(), " ", n)
		_, err := leader.Client().Txn(ctx).Then(clientv3.OpPut(fencedKey, value)).Commit()
		if _, err := client.Put(ctx, unfencedKey, value); err != nil {
			return err
		}
		if errors.Is(err, election.ErrNotLeader) {
			fmt.Println("refused", leader.Term())
			return err
		}
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
	return nil
}

// A holder is a process that takes part.
type holder struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	end   func()
}

func startHolder(t *testing.T, endpoint, id string) *holder {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &holder{t: t, cmd: exec.Command(executable), lines: make(chan string, 1000)}
	h.cmd.Env = append(os.Environ(), roleVar+"=holder", endpointVar+"="+endpoint, idVar+"="+id)
	h.cmd.Stderr = os.Stderr
	in, err := h.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	h.end = func() { in.Close() }
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(h.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			h.lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = h.cmd.Process.Kill()
		<-read
		_ = h.cmd.Wait()
	})
	return h
}

// awaitLine waits for a line that begins with these words.
func (h *holder) awaitLine(words string) {
	h.t.Helper()
	timeout := time.After(30 * time.Second)
	for {
		select {
		case line, ok := <-h.lines:
			if !ok {
				h.t.Fatalf("the process ended before it said %q", words)
			}
			if strings.HasPrefix(line, words) {
				return
			}
		case <-timeout:
			h.t.Fatalf("the process did not say %q within 30 s", words)
		}
	}
}

func (h *holder) signal(s syscall.Signal) {
	h.t.Helper()
	if err := h.cmd.Process.Signal(s); err != nil {
		h.t.Fatal(err)
	}
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

func counting(t *testing.T, endpoint string, calls *atomic.Int64) *clientv3.Client {
	t.Helper()
	unary := func(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		calls.Add(1)
		return invoke(ctx, method, request, answer, conn, opts...)
	}
	stream := func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		calls.Add(1)
		return open(ctx, desc, conn, method, opts...)
	}
	return etcdtest.DialWith(t, dial.Options{
		Endpoints: []string{endpoint},
		GRPC:      []grpc.DialOption{grpc.WithChainUnaryInterceptor(unary), grpc.WithChainStreamInterceptor(stream)},
	})
}
