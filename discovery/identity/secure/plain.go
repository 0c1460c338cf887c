package secure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"

	"golang.org/x/net/http2"
)

// Plain wraps a listener without TLS: clients that speak TLS are logged, with the name of the
// port. The server on the port turns them away, in the words of its protocol.
func Plain(inner net.Listener, name string, logger *slog.Logger) net.Listener {
	return &plainListener{Listener: inner, name: name, logger: logger}
}

type plainListener struct {
	net.Listener
	name   string
	logger *slog.Logger
}

// Accept implements net.Listener.
func (l *plainListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &plainConn{Conn: c, listener: l}, nil
}

// plainConn looks at the first byte that it reads.
type plainConn struct {
	net.Conn
	listener *plainListener
	heard    bool // one goroutine reads
}

// errSpeaksTLS is what a client with TLS has got wrong.
var errSpeaksTLS = errors.New("the client speaks TLS, and this port serves without it")

// Read implements net.Conn.
func (c *plainConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.heard || n == 0 {
		return n, err
	}
	c.heard = true
	if b[0] == recordHandshake {
		c.listener.logger.Warn("refusing a connection", "port", c.listener.name, "client", c.RemoteAddr().String(), "err", errSpeaksTLS)
	}
	return n, err
}

// HTTPFarewell is an Options.Farewell in HTTP/1.1: 400, with a body of a content type.
func HTTPFarewell(contentType, body string) func([]byte) []byte {
	return func([]byte) []byte {
		return fmt.Appendf(nil, "HTTP/1.1 400 Bad Request\r\nContent-Type: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s\n", contentType, len(body)+1, body)
	}
}

// GRPCFarewell is an Options.Farewell in HTTP/2, which libraries of gRPC show: the connection
// ends for INADEQUATE_SECURITY, with the words. Clients of HTTP/1 get HTTPFarewell.
func GRPCFarewell(words string) func([]byte) []byte {
	return func(began []byte) []byte {
		if !bytes.HasPrefix(began, []byte("PRI ")) {
			return HTTPFarewell("text/plain; charset=utf-8", words)(began)
		}
		var out bytes.Buffer
		frames := http2.NewFramer(&out, io.LimitReader(nil, 0))
		_ = frames.WriteSettings() // a buffer takes everything
		_ = frames.WriteGoAway(0, http2.ErrCodeInadequateSecurity, []byte(words))
		return out.Bytes()
	}
}
