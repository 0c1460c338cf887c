package secure

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"

	"golang.org/x/net/http2"
)

type readerConn struct {
	net.Conn // always nil
	io.Reader
	closed bool
}

func (c *readerConn) Read(b []byte) (int, error) { return c.Reader.Read(b) }
func (c *readerConn) Close() error               { c.closed = true; return nil }
func (c *readerConn) RemoteAddr() net.Addr       { return &net.TCPAddr{Port: 7} }

// clientBytes returns what a client sends that opens this many streams among other frames, whose
// contents look like frames.
func clientBytes(streams int) []byte {
	var out bytes.Buffer
	out.WriteString(http2.ClientPreface)
	frames := http2.NewFramer(&out, nil)
	tricky := bytes.Repeat([]byte{0, 0, 1, byte(http2.FrameHeaders)}, 10)
	_ = frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}) // writing to a buffer never fails
	for i := range streams {
		id := uint32(2*i + 1)
		_ = frames.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: tricky, EndHeaders: true})
		_ = frames.WriteData(id, false, tricky)
		_ = frames.WriteWindowUpdate(id, 1)
		_ = frames.WritePing(false, [8]byte{0, 0, 0, 1})
		_ = frames.WriteRSTStream(id, http2.ErrCodeCancel)
	}
	return out.Bytes()
}

// TestStreamsAreCounted: streams are counted however the bytes are split, and no more are read
// than may be opened.
func TestStreamsAreCounted(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]func(io.Reader) io.Reader{
		"whole":        func(r io.Reader) io.Reader { return r },
		"byte by byte": iotest.OneByteReader,
		"by halves":    iotest.HalfReader,
		"with the end": iotest.DataErrReader,
	} {
		for streams, fits := range map[int]bool{0: true, 1: true, 20: true, 21: false, 200: false} {
			excesses := 0
			c := &readerConn{Reader: in(bytes.NewReader(clientBytes(streams)))}
			bounds := Streams{Burst: 20, Rate: 1e-9, OnExcess: func(client net.Addr) {
				if excesses++; client.(*net.TCPAddr).Port != 7 {
					t.Errorf("it is said of %s", client)
				}
			}}
			got, err := io.ReadAll(bounds.limit(c))
			if fits && (err != nil || !bytes.Equal(got, clientBytes(streams)) || c.closed || excesses != 0) {
				t.Errorf("%s, %d streams: %d bytes, %v, closed %t, told %d times", name, streams, len(got), err, c.closed, excesses)
			}
			if !fits && (!errors.Is(err, errStreams) || !bytes.HasPrefix(clientBytes(21), got) || len(got) >= len(clientBytes(20))+len(frames{}.head) || !c.closed || excesses != 1) {
				t.Errorf("%s, %d streams: %d bytes, %v, closed %t, told %d times", name, streams, len(got), err, c.closed, excesses)
			}
		}
	}
	c := &readerConn{}
	if (Streams{}).limit(c) != net.Conn(c) {
		t.Error("without bounds the connection is another")
	}
}
