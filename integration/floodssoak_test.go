package integration

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/credentials"

	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/storage/retry"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// flood has an attacker's connections to a port.
type flood struct {
	*attack
	opened, ended atomic.Int64 // successful connections; those of them that the server ended
}

// open opens connections, with or without TLS, and calls write on each. It reads from each
// until the server or the attack ends.
func (f *flood) open(address string, config *tls.Config, n int, write func(c net.Conn) error) {
	places := make(chan struct{}, 64) // concurrent handshakes
	for range n {
		places <- struct{}{}
		f.running.Go(func() { f.connect(address, config, write, func() { <-places }) })
	}
}

// reopen is open for attackers that reconnect a tenth of a second after the server has ended a
// connection. Without the pause they would measure TLS handshakes, since attackers and server
// share the cores.
func (f *flood) reopen(address string, config *tls.Config, n int, write func(c net.Conn) error) {
	for range n {
		f.running.Go(func() {
			for f.ctx.Err() == nil {
				f.connect(address, config, write, func() {})
				_ = retry.Sleep(f.ctx, 100*time.Millisecond)
			}
		})
	}
}

// connect makes one connection, and calls made once it is open or has failed.
func (f *flood) connect(address string, config *tls.Config, write func(c net.Conn) error, made func()) {
	c, err := (&net.Dialer{}).DialContext(f.ctx, "tcp", address)
	if err == nil && config != nil {
		secured := tls.Client(c, config)
		if err = secured.HandshakeContext(f.ctx); err != nil {
			_ = c.Close()
		}
		c = secured
	}
	made()
	if err != nil {
		return
	}
	f.opened.Add(1)
	stop := context.AfterFunc(f.ctx, func() { _ = c.Close() })
	defer stop()
	var writing sync.WaitGroup
	writing.Go(func() { _ = write(c) }) // runs until the connection is closed
	_, _ = io.Copy(io.Discard, c)
	if f.ctx.Err() == nil {
		f.ended.Add(1)
	}
	_ = c.Close()
	writing.Wait()
}

// drip writes a text, and then a byte each half second.
func (f *flood) drip(begin string) func(net.Conn) error {
	return func(c net.Conn) error {
		if _, err := io.WriteString(c, begin); err != nil {
			return err
		}
		ticker := time.NewTicker(500 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-f.ctx.Done():
				return nil
			case <-ticker.C:
			}
			if _, err := c.Write([]byte{'x'}); err != nil {
				return err
			}
		}
	}
}

// resets opens and resets HTTP/2 streams, one after the other (CVE-2023-44487).
func resets(path, contentType string, streams int) func(net.Conn) error {
	return func(c net.Conn) error {
		var headers, out bytes.Buffer
		encoder := hpack.NewEncoder(&headers)
		encoder.SetMaxDynamicTableSize(0)
		for _, h := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":path", path}, {":authority", "portolan.test"}, {"content-type", contentType}, {"te", "trailers"}} {
			if err := encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1], Sensitive: true}); err != nil {
				return err
			}
		}
		out.WriteString(http2.ClientPreface)
		framer := http2.NewFramer(&out, nil)
		_ = framer.WriteSettings() // the writes go to a buffer
		_ = framer.WriteSettingsAck()
		for i := range streams {
			id := uint32(2*i + 1)
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers.Bytes(), EndHeaders: true})
			_ = framer.WriteRSTStream(id, http2.ErrCodeCancel)
			if out.Len() > 64<<10 {
				if _, err := out.WriteTo(c); err != nil {
					return err
				}
			}
		}
		_, err := out.WriteTo(c)
		return err
	}
}

// TestSoakFloods attacks both ports of a server with fifty proxies over TLS, each port in
// several ways. Memory and open files of the server stay within bounds, changes reach the
// proxies, and new proxies are served.
func TestSoakFloods(t *testing.T) {
	connections, streams, changes, memory, files := 1200, 2_000, 3, float64(700<<20), 6_000.0
	until := time.Now()
	long := longtest.Soak(t)
	if long > 0 {
		connections, streams, changes, memory, files = 5_000, 50_000, 60, 2<<30, 20_000 // connections: for each port
		until = until.Add(long)
	}
	s := startSecureServer(t, serverOptions{})
	by := credentials.NewTLS(s.as(t, webIdentity))
	healthy := startHealthyAt(t, s.server, 50, s.secureXDS, by)
	config := func(protocols ...string) *tls.Config {
		return &tls.Config{RootCAs: s.authority.Pool(), ServerName: "portolan.test", NextProtos: protocols}
	}
	nothing := func(net.Conn) error { return nil }
	preface := func(c net.Conn) error {
		_, err := io.WriteString(c, http2.ClientPreface+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		return err
	}
	hello := func(c net.Conn) error { _, err := c.Write([]byte{0x16, 3, 1, 2, 0, 1}); return err }
	const post = "POST /apis/portolan.io/v1/batches HTTP/1.1\r\nHost: portolan.test\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n"
	attacks := []struct {
		name   string
		begin  func(f *flood)
		opened int // how many connections must succeed
		ended  int // how many of these the server must soon end
	}{
		{"half-open handshakes", func(f *flood) {
			f.open(s.api, nil, connections, hello)
			f.open(s.secureXDS, nil, connections, hello)
		}, 2 * connections, 2 * (connections - 1024)},
		{"connections of the API that ask nothing", func(f *flood) { f.open(s.api, config("h2"), connections/4, preface) }, connections / 4, 0},
		{"connections of xDS without a preface", func(f *flood) { f.open(s.secureXDS, config("h2"), connections/4, nothing) }, connections / 4, 0},
		{"connections of xDS without a stream", func(f *flood) { f.open(s.secureXDS, config("h2"), connections/4, preface) }, connections / 4, 0},
		{"headers byte by byte", func(f *flood) {
			f.open(s.api, config("http/1.1"), connections/4, f.drip("GET /apis HTTP/1.1\r\nHost: portolan.test\r\nX-Slow: "))
		}, connections / 4, 0},
		{"a body byte by byte", func(f *flood) {
			f.open(s.api, config("http/1.1"), connections/4, f.drip(post+"\r\n{"))
		}, connections / 4, 0},
		{"resets at the API", func(f *flood) {
			f.reopen(s.api, config("h2"), 4, resets("/apis/portolan.io/v1/batches", "application/json", streams))
		}, 4, 4},
		{"resets at xDS", func(f *flood) {
			f.reopen(s.secureXDS, config("h2"), 4, resets(deltaADS, "application/grpc", streams))
		}, 4, 4},
	}
	usual := healthy.measure(t, changes)
	before := s.resident()
	t.Logf("a change takes %s to 99 in 100, resident memory is %.0f MiB", usual, before/(1<<20))
	times := map[string][]time.Duration{} // until a change arrives, by round
	for round := 0; round == 0 || time.Now().Before(until); round++ {
		for _, one := range attacks {
			f := &flood{attack: newAttack(t)}
			one.begin(f)
			under := healthy.measure(t, changes)
			eventually(t, one.name+": connections are ended", func() error {
				if opened, ended := f.opened.Load(), f.ended.Load(); opened < int64(one.opened) || ended < int64(one.ended) {
					return fmt.Errorf("%d of %d are, want %d of %d", ended, opened, one.ended, one.opened)
				}
				return nil
			})
			resident, open := s.resident(), s.gauge("process_open_fds")
			t.Logf("%s: a change takes %s, resident memory is %.0f MiB, %.0f open files, %d of %d connections were ended",
				one.name, under, resident/(1<<20), open, f.ended.Load(), f.opened.Load())
			times[one.name] = append(times[one.name], under)
			if resident > memory || open > files {
				t.Errorf("%s: resident memory is %.0f MiB, and %.0f files are open", one.name, resident/(1<<20), open)
			}
			newcomer := xdstest.Dial(t, s.secureXDS, xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", "10.8.0.1", "newcomer", "shop", nil), Variant: protocol.Delta, Credentials: by})
			newcomer.Subscribe(xdstest.ClusterType)
			newcomer.AwaitAnswer(xdstest.ClusterType, 0)
			newcomer.Close()
			f.end()
		}
	}
	// The median counts, since the attackers and the garbage collector use the same cores.
	for _, one := range attacks {
		took := times[one.name]
		slices.Sort(took)
		if median := took[len(took)/2]; long > 0 && median > 3*usual {
			t.Errorf("%s: a change takes %s to 99 in 100, the median of %d rounds: it took %s", one.name, median, len(took), usual)
		}
	}
	if !s.process.running() {
		t.Fatal(errors.New("the server has ended"))
	}
}
