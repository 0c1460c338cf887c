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
	"sync"
	"time"
)

const (
	// HandshakeTimeout is how long a client may take from its connection to the end of its
	// handshake.
	HandshakeTimeout = 10 * time.Second
	// DefaultHalfOpen is the default of Options.HalfOpen: some tens of megabytes.
	DefaultHalfOpen = 1024
	// farewell is how long a client that does not speak TLS may take to read why it is
	// turned away.
	farewell = time.Second
	// farewellBytes bounds what is read of such a client.
	farewellBytes = 64 << 10
)

// Options say how a Listener serves. Certificate is required.
type Options struct {
	// Name is the port in the log, such as --secure-xds-address.
	Name string
	// Certificate returns the certificate of the server, for each handshake.
	Certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Roots returns the authorities that sign the certificates of clients, for each handshake.
	// Where it is nil, or returns nil, clients are asked for none.
	Roots func() *x509.CertPool
	// Protocols are offered by ALPN, the preferred ones first.
	Protocols []string
	// HalfOpen bounds the handshakes that run at one time; 0 stands for DefaultHalfOpen.
	HalfOpen int
	// Plain says whether a client may speak without TLS; nil allows none. Such a connection
	// comes out of Accept as it is, when it has sent its first byte.
	Plain func(net.Conn) bool
	// Farewell answers a client that speaks without TLS and may not; nil answers nothing.
	Farewell Farewell
	// OnRefusal is told of each client that was turned away for its certificate, and whose
	// that says it is; nil tells nobody. It must not block.
	OnRefusal func(client net.Addr, holder string, err error)
	// Logger is told of handshakes that failed; nil discards that. Limit what it writes: clients
	// can bring it about as often as they like.
	Logger *slog.Logger
	// Now is the time by which certificates are valid; nil stands for time.Now.
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
	all    sync.WaitGroup // what accepts and the handshakes
}

// Listen serves TLS on the connections of a listener. Nothing is accepted before the first
// call of Accept. Close the Listener in the end; that closes inner and every handshake.
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
		SessionTicketsDisabled: true, // a session that goes on would escape roots that have gone
	}
	l.config.GetConfigForClient = l.configFor
	return l
}

// configFor is the configuration of one handshake, with the roots of now.
func (l *Listener) configFor(*tls.ClientHelloInfo) (*tls.Config, error) {
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

// Close implements net.Listener. It returns when no handshake is under way any more.
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
			if errors.As(err, &t) && t.Temporary() && l.pause() { // there are too many open files
				continue
			}
			l.cancel(err)
			return
		}
		if !l.handshake.enter(c) {
			_ = c.Close()
			continue
		}
		l.all.Go(func() { l.welcome(c) })
	}
}

// pause waits before the next attempt to accept; false if the listener is closed meanwhile.
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

// welcome shakes hands on one connection, and hands it over.
func (l *Listener) welcome(c net.Conn) {
	ready, err := l.shake(c)
	evicted := l.handshake.leave(c)
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
	case errors.Is(err, io.EOF): // it came to see whether somebody listens
	default:
		explained := explain(err, l.o.Now())
		l.o.Logger.Warn("refusing a connection", "port", l.o.Name, "client", c.RemoteAddr().String(), "err", explained)
		if leaf := presented(err); leaf != nil && l.o.OnRefusal != nil {
			l.o.OnRefusal(c.RemoteAddr(), nameOf(leaf), explained)
		}
	}
	_ = c.Close()
}

// errPlain is what a client without TLS has got wrong.
var errPlain = errors.New("the client speaks without TLS, and this port serves TLS alone")

// recordHandshake is the first byte of a connection with TLS.
const recordHandshake = 0x16

// shake reads what the client begins with, and completes its handshake.
func (l *Listener) shake(c net.Conn) (net.Conn, error) {
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
		l.bidFarewell(c, first)
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

// errSilent is the fault of a client that does not go on.
var errSilent = errors.New("the client did not complete the handshake within " + HandshakeTimeout.String())

// bidFarewell tells a client without TLS what this port serves. It reads a little of what the
// client sends: a connection that is closed with bytes unread is reset, and the words are lost.
func (l *Listener) bidFarewell(c net.Conn, first []byte) {
	begun := time.Now()
	if l.o.Farewell == nil || c.SetReadDeadline(begun.Add(farewell/2)) != nil || c.SetWriteDeadline(begun.Add(farewell)) != nil {
		return
	}
	began := make([]byte, 4<<10)
	n, _ := c.Read(began) // there may be nothing more
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
