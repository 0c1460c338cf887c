package member_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/net/http2"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/longtest"
)

// TestTheClockIsEtcdsOwn: each tick wakes the process, so the clock must not be faster.
func TestTheClockIsEtcdsOwn(t *testing.T) {
	t.Parallel()
	cfg, err := member.EtcdConfig(member.Options{DataDir: t.TempDir(), Logger: logger(t)})
	if err != nil {
		t.Fatal(err)
	}
	if stock := embed.NewConfig(); cfg.TickMs < stock.TickMs || cfg.ElectionMs != stock.ElectionMs {
		t.Errorf("it ticks every %d ms and waits %d ms for a leader; etcd's own are %d and %d", cfg.TickMs, cfg.ElectionMs, stock.TickMs, stock.ElectionMs)
	}
}

// TestOneThatIsAloneLeadsAtOnce: even on a clock on which an election would take a
// minute.
func TestOneThatIsAloneLeadsAtOnce(t *testing.T) {
	t.Parallel()
	opts := member.Options{DataDir: t.TempDir(), Logger: logger(t)}
	cfg, err := member.EtcdConfig(opts)
	if err != nil {
		t.Fatal(err)
	}
	cfg.TickMs, cfg.ElectionMs = 10_000, 50_000
	for _, start := range []string{"new", "again"} {
		etcd, err := embed.StartEtcd(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second) // shorter than an election
		if err := member.AwaitReady(ctx, etcd, opts); err != nil {
			t.Errorf("%s: %v", start, err)
			etcd.Server.HardStop()
		}
		cancel()
		etcd.Close()
	}
}

// TestAProcessAtRestIsSeldomAsked: the process is probed at every interval only while a
// call waits for it.
func TestAProcessAtRestIsSeldomAsked(t *testing.T) {
	t.Parallel()
	awaited := make([]bool, 40)
	count := func() (n int) {
		for _, asked := range member.Pace(awaited) {
			if asked {
				n++
			}
		}
		return n
	}
	if n := count(); n != 4 {
		t.Errorf("it is asked %d times in 40 intervals in which nobody waits", n)
	}
	awaited[5] = true
	if asked := member.Pace(awaited); !asked[0] || !asked[5] || slices.Index(asked[6:], true) != 9 {
		t.Errorf("asked is %v", asked)
	}
	for i := range awaited {
		awaited[i] = true
	}
	if n := count(); n != 40 {
		t.Errorf("it is asked %d times in 40 intervals in all of which somebody waits", n)
	}
}

// TestMessagesCostNoPings: neither the client nor the process sends a ping of HTTP/2 for a
// message, since each ping wakes both.
func TestMessagesCostNoPings(t *testing.T) {
	t.Parallel()
	_, endpoint := startChild(t, childOptions(t, t.TempDir()))
	listener, err := net.Listen("unix", filepath.Join(shortDir(t), "relay"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	var sent, answered bytes.Buffer // complete when relayed is closed
	relayed := make(chan struct{})
	go func() {
		defer close(relayed)
		client, err := listener.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		defer client.Close()
		server, err := net.Dial("unix", strings.TrimPrefix(endpoint, "unix://"))
		if err != nil {
			t.Error(err)
			return
		}
		defer server.Close()
		answers := make(chan struct{})
		go func() {
			defer close(answers)
			_, _ = io.Copy(client, io.TeeReader(server, &answered))
		}()
		_, _ = io.Copy(server, io.TeeReader(client, &sent))
		server.Close()
		<-answers
	}()
	client, err := dial.New(dial.Options{Endpoints: []string{"unix://" + listener.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	const messages = 20
	for i := range messages {
		put(t, client, "k", strconv.Itoa(i))
	}
	client.Close()
	<-relayed
	for from, stream := range map[string][]byte{"the client": bytes.TrimPrefix(sent.Bytes(), []byte(http2.ClientPreface)), "the process": answered.Bytes()} {
		frames := framesOf(stream)
		if frames[http2.FrameData] < messages || frames[http2.FramePing] > 0 {
			t.Errorf("%s sent %d pings for %d messages: %v", from, frames[http2.FramePing], messages, frames)
		}
	}
}

// framesOf counts the frames of HTTP/2 in a stream, by their types.
func framesOf(stream []byte) map[http2.FrameType]int {
	const head = 9 // three bytes of length, then the type
	frames := map[http2.FrameType]int{}
	for len(stream) >= head {
		length := int(stream[0])<<16 | int(stream[1])<<8 | int(stream[2])
		frames[http2.FrameType(stream[3])]++
		stream = stream[min(head+length, len(stream)):]
	}
	return frames
}

// TestSoakALongLogIsNoDamage: a store whose log has grown since its last snapshot starts
// each time. In one of a hundred starts raft had to campaign while etcd compacted the
// part of the log that raft had yet to search.
func TestSoakALongLogIsNoDamage(t *testing.T) {
	t.Parallel()
	limit := longtest.Soak(t)
	dir := t.TempDir()
	start := func(entries int) {
		t.Helper()
		m, err := member.Start(t.Context(), member.Options{DataDir: dir, Logger: logger(t)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range entries {
			if _, err := m.Client().Put(t.Context(), "k", strconv.Itoa(i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for begun, n := time.Now(), 0; n < 6 || time.Since(begun) < limit; n++ {
		start(130) // enough for a compaction in memory, and every few starts a snapshot
	}
}
