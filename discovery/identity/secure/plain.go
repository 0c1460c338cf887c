package secure

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
)

// Plain wraps a listener without TLS. It logs clients that speak TLS, with the name of the
// port. The server on the port refuses them in its own protocol.
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

// plainConn checks the first byte that it reads.
type plainConn struct {
	net.Conn
	listener *plainListener
	heard    bool // no lock: only one goroutine reads
}

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

// A Farewell answers a client that speaks without TLS and may not. It reads from the client
// and writes to it, for at most a second. began holds the bytes that the client has sent so
// far.
type Farewell func(c io.ReadWriter, began []byte)

// HTTPFarewell answers in HTTP/1.1 with status 400 and this body.
func HTTPFarewell(contentType, body string) Farewell {
	return func(c io.ReadWriter, _ []byte) {
		_, _ = fmt.Fprintf(c, "HTTP/1.1 400 Bad Request\r\nContent-Type: %s\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s\n", contentType, len(body)+1, body)
	}
}

// GRPCFarewell answers in HTTP/2: it ends the first call with Unauthenticated and these words,
// then the connection with INADEQUATE_SECURITY. If the connection ended before a call, gRPC
// libraries would reconnect at once, for ever. Clients of HTTP/1 get HTTPFarewell.
func GRPCFarewell(words string) Farewell {
	return func(c io.ReadWriter, began []byte) {
		if !bytes.HasPrefix(began, []byte("PRI ")) {
			HTTPFarewell("text/plain; charset=utf-8", words)(c, began)
			return
		}
		sent := io.MultiReader(bytes.NewReader(began), io.LimitReader(c, farewellBytes))
		frames := http2.NewFramer(c, sent)
		if _, err := io.CopyN(io.Discard, sent, int64(len(http2.ClientPreface))); err != nil || frames.WriteSettings() != nil {
			return
		}
		call := firstCall(frames)
		if call != 0 {
			var block bytes.Buffer
			fields := hpack.NewEncoder(&block)
			for _, f := range []hpack.HeaderField{
				{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/grpc"},
				{Name: "grpc-status", Value: strconv.Itoa(int(codes.Unauthenticated))}, {Name: "grpc-message", Value: words},
			} {
				_ = fields.WriteField(f) // writing to a buffer never fails
			}
			if frames.WriteHeaders(http2.HeadersFrameParam{StreamID: call, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}) != nil {
				return
			}
		}
		_ = frames.WriteGoAway(call, http2.ErrCodeInadequateSecurity, []byte(words))
	}
}

// firstCall reads frames until one opens a stream, and returns the stream's number; 0 if none
// does.
func firstCall(frames *http2.Framer) uint32 {
	for {
		switch f, err := frames.ReadFrame(); f := f.(type) {
		case *http2.HeadersFrame:
			return f.StreamID
		default:
			if err != nil {
				return 0
			}
		}
	}
}
