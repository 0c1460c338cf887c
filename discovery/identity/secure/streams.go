package secure

import (
	"errors"
	"net"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/time/rate"
)

// Streams bounds how fast a client may open HTTP/2 streams on one connection. The zero Streams
// bounds nothing.
type Streams struct {
	// Burst is how many streams may be opened at once, Rate how many a second after that. A
	// Burst of 0 means no bound.
	Burst int
	Rate  float64
	// OnExcess is called for each client whose connection ends for that; may be nil. It must
	// not block.
	OnExcess func(client net.Addr)
}

// errStreams is the error of a connection whose client exceeds the bounds.
var errStreams = errors.New("the client opens streams too fast")

// limit returns a connection that ends when its client exceeds the bounds.
func (s Streams) limit(c net.Conn) net.Conn {
	if s.Burst == 0 {
		return c
	}
	return &streamsConn{Conn: c, bounds: s, left: rate.NewLimiter(rate.Limit(s.Rate), s.Burst), frames: frames{skip: len(http2.ClientPreface)}}
}

// streamsConn counts the streams in what it reads. A stream counts when it is opened: even one
// that is reset at once, or that the server rejects, costs as much.
type streamsConn struct {
	net.Conn
	bounds Streams
	left   *rate.Limiter
	frames frames // no lock: only one goroutine reads
	ended  bool
}

// Read implements net.Conn.
func (c *streamsConn) Read(b []byte) (int, error) {
	if c.ended {
		return 0, errStreams
	}
	n, err := c.Conn.Read(b)
	opened := c.frames.headers(b[:n])
	if opened == 0 || c.left.AllowN(time.Now(), opened) {
		return n, err
	}
	c.ended = true
	if c.bounds.OnExcess != nil {
		c.bounds.OnExcess(c.RemoteAddr())
	}
	_ = c.Close() // the reader gets errStreams
	return 0, errStreams
}

// frames parses the frames of an HTTP/2 client from a stream of bytes.
type frames struct {
	skip int // bytes to skip until the next frame
	head [9]byte
	have int // bytes of head read so far
}

// headers returns how many HEADERS frames begin in the next bytes. A client sends one for each
// stream.
func (f *frames) headers(b []byte) (n int) {
	for len(b) > 0 {
		if f.skip > 0 {
			skipped := min(f.skip, len(b))
			f.skip, b = f.skip-skipped, b[skipped:]
			continue
		}
		read := copy(f.head[f.have:], b)
		f.have, b = f.have+read, b[read:]
		if f.have < len(f.head) {
			break
		}
		f.have, f.skip = 0, int(f.head[0])<<16|int(f.head[1])<<8|int(f.head[2])
		if http2.FrameType(f.head[3]) == http2.FrameHeaders {
			n++
		}
	}
	return n
}
