package secure

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"time"
)

const (
	// HandshakeTimeout is how long a client may take from its connection to the end of its
	// handshake.
	HandshakeTimeout = 10 * time.Second
	// DefaultHalfOpen is the default of Options.HalfOpen: some tens of megabytes.
	DefaultHalfOpen = 1024
	// farewell is the time for a client that does not speak TLS to read why it is refused.
	farewell = time.Second
	// farewellBytes bounds what is read of such a client.
	farewellBytes = 64 << 10
)

// Options configure a Listener. Certificate is required.
type Options struct {
	// Name is the port's name in the log, such as --secure-xds-address.
	Name string
	// Certificate returns the certificate of the server, for each handshake.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Roots returns the authorities that sign client certificates, for each handshake. If
	// Roots is nil or returns nil, clients are not asked for a certificate.
	Roots func() *x509.CertPool
	// Protocols are the ALPN protocols to offer, preferred ones first.
	Protocols []string
	// Unverified is what a client offers by ALPN to have its certificate not verified; empty
	// is nothing. It must show one and prove that it has the key; Peer and VerifiedChains have
	// none. Such a connection speaks http/1.1.
	Unverified string
	// HalfOpen bounds the concurrent handshakes; 0 means DefaultHalfOpen.
	HalfOpen int
	// Plain says whether a client may speak without TLS; nil allows none. Accept returns such
	// a connection unchanged, once it has sent its first byte.
	Plain func(net.Conn) bool
	// Farewell answers a client that speaks without TLS and may not; nil closes without an
	// answer.
	Farewell Farewell
	// OnRefusal is called for each client that is refused for its certificate; holder is the
	// name in the certificate. May be nil. It must not block.
	OnRefusal func(client net.Addr, holder string, err error)
	// Logger logs failed handshakes; nil discards them. Limit its rate: clients can cause
	// entries as often as they like.
	Logger *slog.Logger
	// Now is the clock that decides whether certificates are valid; nil means time.Now.
	Now func() time.Time
}

// Listener is a net.Listener whose connections have completed their handshake.
type Listener struct {
	inner     net.Listener
	o         Options
	config    *tls.Config
	handshake *halfOpen
	ready     chan net.Conn

	begin  sync.Once
	ctx    context.Context
	cancel context.CancelCauseFunc
	all    sync.WaitGroup // accept, and all handshakes
}

// Listen serves TLS on the connections of inner. It accepts nothing before the first call of
// Accept. Close the Listener in the end; that also closes inner and all handshakes.
func Listen(inner net.Listener, o Options) *Listener {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	l := &Listener{inner: inner, o: o, handshake: newHalfOpen(cmp.Or(o.HalfOpen, DefaultHalfOpen)), ready: make(chan net.Conn)}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.config = &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: o.Protocols, GetCertificate: o.Certificate, Time: o.Now,
		SessionTicketsDisabled: true, // a resumed session would survive the removal of its root
	}
	l.config.GetConfigForClient = l.configFor
	return l
}

// configFor returns the configuration for one handshake, with the current roots. A
// certificate stays unverified only where the client asks for that by Options.Unverified.
func (l *Listener) configFor(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	if p := l.o.Unverified; p != "" && slices.Contains(hello.SupportedProtos, p) {
		c := l.config.Clone()
		c.GetConfigForClient = nil
		c.NextProtos, c.ClientAuth = []string{"http/1.1"}, tls.RequireAnyClientCert
		return c, nil
	}
	if l.o.Roots == nil {
		return nil, nil
	}
	roots := l.o.Roots()
	if roots == nil {
		return nil, nil
	}
	c := l.config.Clone()
	c.GetConfigForClient = nil
	c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, roots
	return c, nil
}

// Addr implements net.Listener.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Close implements net.Listener. It waits until all handshakes have ended.
func (l *Listener) Close() error {
	l.cancel(net.ErrClosed)
	err := l.inner.Close()
	l.handshake.closeAll()
	l.all.Wait()
	return err
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	l.begin.Do(func() { l.all.Go(l.accept) })
	select {
	case c := <-l.ready:
		return c, nil
	case <-l.ctx.Done():
		return nil, context.Cause(l.ctx)
	}
}

// accept begins a handshake on every connection until the inner listener fails.
func (l *Listener) accept() {
	for {
		c, err := l.inner.Accept()
		if err != nil {
			var t interface{ Temporary() bool }
			if errors.As(err, &t) && t.Temporary() && l.pause() { // as with too many open files
				continue
			}
			l.cancel(err)
			return
		}
		if !l.handshake.add(c) {
			_ = c.Close()
			continue
		}
		l.all.Go(func() { l.serveConn(c) })
	}
}

// pause waits before the next Accept; it returns false if the listener is closed in the
// meantime.
func (l *Listener) pause() bool {
	t := time.NewTimer(50 * time.Millisecond)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// serveConn completes the handshake of a connection and passes the connection to Accept.
func (l *Listener) serveConn(c net.Conn) {
	ready, err := l.completeHandshake(c)
	evicted := l.handshake.remove(c)
	switch {
	case err == nil && !evicted:
		select {
		case l.ready <- ready:
			return
		case <-l.ctx.Done():
		}
	case l.ctx.Err() != nil:
	case evicted:
		l.o.Logger.Warn("closing a connection whose TLS handshake takes too long, as too many do", "port", l.o.Name, "client", c.RemoteAddr().String())
	case errors.Is(err, io.EOF): // a port check
	default:
		explained := explain(err, l.o.Now())
		l.o.Logger.Warn("refusing a connection", "port", l.o.Name, "client", c.RemoteAddr().String(), "err", explained)
		if leaf := rejectedCertificate(err); leaf != nil && l.o.OnRefusal != nil {
			l.o.OnRefusal(c.RemoteAddr(), nameOf(leaf), explained)
		}
	}
	_ = c.Close()
}

var errPlain = errors.New("the client speaks without TLS, and this port serves TLS alone")

// recordHandshake is the first byte of a TLS connection.
const recordHandshake = 0x16

// completeHandshake reads the first byte of a connection, and completes its handshake.
func (l *Listener) completeHandshake(c net.Conn) (net.Conn, error) {
	if err := c.SetDeadline(time.Now().Add(HandshakeTimeout)); err != nil {
		return nil, err
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(c, first); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = errSilent
		}
		return nil, err
	}
	begun := &begunConn{Conn: c, begun: first}
	if first[0] != recordHandshake {
		if l.o.Plain != nil && l.o.Plain(c) {
			return begun, c.SetDeadline(time.Time{})
		}
		l.answerPlaintext(c, first)
		return nil, errPlain
	}
	secured := tls.Server(begun, l.config)
	if err := secured.HandshakeContext(l.ctx); err != nil {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			err = errSilent
		}
		return nil, err
	}
	return secured, c.SetDeadline(time.Time{})
}

var errSilent = errors.New("the client did not complete the handshake within " + HandshakeTimeout.String())

// answerPlaintext tells a client without TLS what this port serves. It first reads some of the
// client's data: closing a connection with unread data resets it, and the answer would be
// lost.
func (l *Listener) answerPlaintext(c net.Conn, first []byte) {
	begun := time.Now()
	if l.o.Farewell == nil || c.SetReadDeadline(begun.Add(farewell/2)) != nil || c.SetWriteDeadline(begun.Add(farewell)) != nil {
		return
	}
	began := make([]byte, 4<<10)
	n, _ := c.Read(began) // there may be no more data
	l.o.Farewell(c, append(first, began[:n]...))
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
	_ = c.SetReadDeadline(begun.Add(farewell))
	_, _ = io.CopyN(io.Discard, c, farewellBytes)
}

// begunConn is a connection whose first bytes were already read.
type begunConn struct {
	net.Conn
	begun []byte
}

// Read implements net.Conn.
func (c *begunConn) Read(b []byte) (int, error) {
	if len(c.begun) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.begun)
	c.begun = c.begun[n:]
	return n, nil
}
