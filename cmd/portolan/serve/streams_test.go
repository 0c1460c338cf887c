package serve

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/storage/logtest"
)

// TestRapidResets: the xDS port closes a connection that opens and resets streams faster than
// any real client of xDS. It closes no other.
func TestRapidResets(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := &logtest.Log{}
	o := Options{Logger: slog.New(slog.NewTextHandler(log, nil)), MaxStreamsPerConnection: 10}
	port := newProxyPort(listeners{xds: l}, &o)
	served := make(chan error, 1)
	go func() { served <- port.grpc.Serve(port.plain) }()
	defer func() {
		port.grpc.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	const burst = streamBurst * DefaultMaxStreamsPerConnection
	for _, c := range []struct {
		streams int
		ends    bool
	}{{burst / 2, false}, {20 * burst, true}} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := resetStreams(t, conn, c.streams, nil); (err != nil) != c.ends {
			t.Errorf("%d streams that are opened and reset: %v", c.streams, err)
		}
	}
	expectExcess(t, port.excess, portXDS)
	if log.Count("opens streams too fast") != 1 || !strings.Contains(log.String(), "client=127.0.0.1:") {
		t.Errorf("the log is %q", log)
	}
}

// TestRequestsThatAreGivenUp: the config API closes an HTTP/2 connection that keeps cancelling
// its requests.
func TestRequestsThatAreGivenUp(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := &logtest.Log{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	excess := newExcess(logger)
	begun := make(chan struct{})
	authority := securetest.New(t, "root")
	tlsConfig := securetest.TLS(authority.Issue(t, securetest.Leaf{IPs: []string{"127.0.0.1"}}))
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- serveAPI(ctx, recordingHandler{func(_ http.ResponseWriter, r *http.Request) {
			select {
			case begun <- struct{}{}:
			case <-r.Context().Done():
			}
			<-r.Context().Done()
		}}, excess, logger, tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*tlsConfig}, NextProtos: []string{"h2"}}))
	}()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	for _, c := range []struct {
		streams int
		ends    bool
	}{{resetBurst / 2, false}, {20 * resetBurst, true}} {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: authority.Pool(), NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := resetStreams(t, conn, c.streams, begun); (err != nil) != c.ends {
			t.Errorf("%d requests that are given up: %v", c.streams, err)
		}
	}
	expectExcess(t, excess, portAPI)
	if log.Count("gives up requests too fast") != 1 || !strings.Contains(log.String(), "client=127.0.0.1:") {
		t.Errorf("the log is %q", log)
	}
}

// expectExcess fails the test unless one connection is counted for the port, and none for the
// other.
func expectExcess(t *testing.T, e streamExcess, port string) {
	t.Helper()
	metrics := prometheus.NewRegistry()
	metrics.MustRegister(e)
	families, err := metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range families[0].Metric {
		want := 0.0
		if m.Label[0].GetValue() == port {
			want = 1
		}
		if got := m.GetCounter().GetValue(); got != want {
			t.Errorf("%s: %v connections are counted, want %v", m.Label[0].GetValue(), got, want)
		}
	}
}

// resetStreams opens and resets streams on a connection, and returns why the server closed it.
// If begun is not nil, it resets each stream only after its request has begun.
func resetStreams(t *testing.T, c net.Conn, streams int, begun <-chan struct{}) error {
	t.Helper()
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	var headers, out bytes.Buffer
	fields := hpack.NewEncoder(&headers)
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "https"}, {":path", "/any.Service/Method"}, {":authority", "x"}, {"content-type", "application/grpc"}} {
		_ = fields.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}) // writing to a buffer never fails
	}
	sent, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(sent)
		frames := http2.NewFramer(&out, nil)
		out.WriteString(http2.ClientPreface)
		_ = frames.WriteSettings()
		for i := range streams {
			id := uint32(2*i + 1)
			_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: headers.Bytes(), EndHeaders: true})
			if begun != nil {
				if _, err := out.WriteTo(c); err != nil {
					return
				}
				select {
				case <-begun:
				case <-ended:
					return
				}
			}
			_ = frames.WriteRSTStream(id, http2.ErrCodeCancel)
		}
		_ = frames.WritePing(false, [8]byte{1}) // the server answers after it has read everything
		_, _ = io.Copy(c, &out)                 // fails when the server closes the connection
	}()
	defer func() {
		close(ended)
		_ = c.Close()
		<-sent
	}()
	frames := http2.NewFramer(nil, c)
	for {
		frame, err := frames.ReadFrame()
		if err != nil {
			return err
		}
		if ping, ok := frame.(*http2.PingFrame); ok && ping.IsAck() && ping.Data == [8]byte{1} {
			return nil
		}
	}
}
