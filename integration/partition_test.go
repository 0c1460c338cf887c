package integration

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// wire is a TCP relay to an etcd that can be cut: then it forwards nothing more, of old connections
// and of new ones.
type wire struct {
	address, target string
	listener        net.Listener
	running         sync.WaitGroup
	passed          byteCounter // of the bytes in both directions

	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

// byteCounter counts the bytes that are written to it.
type byteCounter struct{ atomic.Int64 }

// Write implements io.Writer.
func (c *byteCounter) Write(b []byte) (int, error) {
	c.Add(int64(len(b)))
	return len(b), nil
}

func startWire(t testing.TB, target string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &wire{address: l.Addr().String(), target: target, listener: l}
	c.running.Go(c.serve)
	t.Cleanup(func() {
		_ = l.Close()
		c.set(true)
		c.running.Wait()
	})
	return c
}

func (c *wire) serve() {
	for {
		near, err := c.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", c.target)
		c.mu.Lock()
		if err != nil || c.cut {
			_ = near.Close()
			if far != nil {
				_ = far.Close()
			}
		} else {
			c.conns = append(c.conns, near, far)
			for _, pair := range [][2]net.Conn{{near, far}, {far, near}} {
				c.running.Go(func() {
					_, _ = io.Copy(io.MultiWriter(pair[0], &c.passed), pair[1])
					_ = pair[0].Close()
				})
			}
		}
		c.mu.Unlock()
	}
}

// set cuts the wire, or mends it.
func (c *wire) set(cut bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut = cut
	for _, conn := range c.conns {
		_ = conn.Close()
	}
	c.conns = nil
}

// TestAServerThatLosesALivingEtcd: the entries of its proxies go with their leases. When it has
// etcd again, it registers the proxies at once, though their streams never ended.
func TestAServerThatLosesALivingEtcd(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	etcd, m := startEtcd(t), newGroupWeb(t)
	wire := startWire(t, etcd)
	one, two := startServer(t, serverOptions{etcd: wire.address}), startServer(t, serverOptions{etcd: etcd})
	two.apply(m.group(), m.service())
	two.launchEnvoy(envoyOptions{kind: "sidecar", name: "client", ip: "10.0.0.9", variant: protocol.Delta})
	one.agentOf("vm", "127.0.0.1", "web")
	two.awaitEntry("127.0.0.1", true)
	awaitReply(t, m.request(), "here")
	wire.set(true)
	t.Logf("gone %v after the server lost etcd", two.awaitEntry("127.0.0.1", false).Round(time.Millisecond))
	awaitReply(t, m.request(), "503")
	wire.set(false)
	took := two.awaitEntry("127.0.0.1", true)
	t.Logf("back %v after the server has etcd again", took.Round(time.Millisecond))
	awaitReply(t, m.request(), "here")
	if n := strings.Count(one.process.output(), "proxy connected"); n != 1 {
		t.Errorf("the proxy connected %d times", n)
	}
}
