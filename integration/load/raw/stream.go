package raw

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/mem"
)

const (
	// The windows of Envoy's streams and connections: how much a server may send in advance.
	streamWindow, connectionWindow = 16 << 20, 24 << 20
	// firstWindow is the initial window in HTTP/2.
	firstWindow = 65535
	// maxFrame is the frame size that every HTTP/2 peer accepts.
	maxFrame = 16 << 10
	// maxMessage is the largest plausible message size.
	maxMessage = 1 << 30
	// theStream is the number of the only stream.
	theStream = 1
	// readAhead is the size of the read buffer.
	readAhead = 32 << 10
)

// Stream is the client's side of one gRPC stream, on a connection of its own. It belongs to one
// goroutine.
type Stream struct {
	// Heard, if not nil, is called when a part of a message begins to arrive.
	Heard func()

	conn net.Conn
	in   *bufio.Reader
	stop func() bool

	out     bytes.Buffer // frames for the next Flush
	waiting []byte       // messages that the windows of the server leave no room for
	first   int64        // the window that the server gives a stream at first
	stream  int64        // what is left of its window
	whole   int64        // what is left of that of the connection

	taken   int    // of the window that the server has, since it was told last
	headers []byte // of a header block that continues in further frames
	decoder *hpack.Decoder
	said    map[string]string // the headers that were decoded last
	message mem.Buffer        // the last that was received
	rest    int               // what is left of the frame of data that is being read
	padding int               // what follows it
}

// Open connects to host:port in plaintext and opens a stream of a method, such as
// "/package.Service/Method". The stream ends with ctx.
func Open(ctx context.Context, address, method string) (*Stream, error) {
	return OpenTLS(ctx, address, method, nil)
}

// OpenTLS is Open over TLS with a configuration; nil is plaintext. If the configuration has no
// server name, it is the host of the address.
func OpenTLS(ctx context.Context, address, method string, over *tls.Config) (*Stream, error) {
	plain, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	conn := plain
	if over != nil {
		if conn, err = secure(ctx, plain, address, over); err != nil {
			_ = plain.Close()
			return nil, err
		}
	}
	s := &Stream{
		conn: conn, in: bufio.NewReaderSize(conn, readAhead), said: map[string]string{},
		first: firstWindow, stream: firstWindow, whole: firstWindow,
	}
	s.decoder = hpack.NewDecoder(4096, func(h hpack.HeaderField) { s.said[h.Name] = h.Value })
	s.stop = context.AfterFunc(ctx, func() { _ = plain.Close() })
	s.begin(address, method, over != nil)
	if err := s.Flush(); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// secure does the TLS handshake, and negotiates HTTP/2.
func secure(ctx context.Context, plain net.Conn, address string, over *tls.Config) (net.Conn, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	c := over.Clone()
	c.NextProtos, c.ServerName = []string{"h2"}, cmp.Or(c.ServerName, host)
	conn := tls.Client(plain, c)
	return conn, conn.HandshakeContext(ctx)
}

// Close ends the stream.
func (s *Stream) Close() {
	s.stop()
	_ = s.conn.Close()
	s.free()
}

func (s *Stream) free() {
	if s.message != nil {
		s.message.Free()
		s.message = nil
	}
}

// begin sends the client's preface and headers.
func (s *Stream) begin(address, method string, secured bool) {
	scheme := "http"
	if secured {
		scheme = "https"
	}
	s.out.WriteString(http2.ClientPreface)
	settings := binary.BigEndian.AppendUint16(nil, uint16(http2.SettingEnablePush))
	settings = binary.BigEndian.AppendUint32(settings, 0)
	settings = binary.BigEndian.AppendUint16(settings, uint16(http2.SettingInitialWindowSize))
	settings = binary.BigEndian.AppendUint32(settings, streamWindow)
	s.frame(http2.FrameSettings, 0, 0, settings)
	s.update(0, connectionWindow-firstWindow)

	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for _, h := range [][2]string{
		{":method", "POST"}, {":scheme", scheme}, {":path", method}, {":authority", address},
		{"content-type", "application/grpc"}, {"te", "trailers"},
	} {
		_ = encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}) // no error: it writes to a buffer
	}
	s.frame(http2.FrameHeaders, http2.FlagHeadersEndHeaders, theStream, block.Bytes())
}

// frame adds a frame to the next write.
func (s *Stream) frame(kind http2.FrameType, flags http2.Flags, stream uint32, payload []byte) {
	head := [9]byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), byte(kind), byte(flags)}
	binary.BigEndian.PutUint32(head[5:], stream)
	s.out.Write(head[:])
	s.out.Write(payload)
}

func (s *Stream) update(stream uint32, by int) {
	s.frame(http2.FrameWindowUpdate, 0, stream, binary.BigEndian.AppendUint32(nil, uint32(by)))
}

// Send queues a message for the next Flush. If the server's windows have no room for it, a
// later Receive sends it.
func (s *Stream) Send(message []byte) {
	s.waiting = append(s.waiting, 0) // not compressed
	s.waiting = binary.BigEndian.AppendUint32(s.waiting, uint32(len(message)))
	s.waiting = append(s.waiting, message...)
}

// Flush writes what the windows allow.
func (s *Stream) Flush() error {
	for {
		n := min(int64(len(s.waiting)), s.stream, s.whole, maxFrame)
		if n <= 0 {
			break
		}
		s.frame(http2.FrameData, 0, theStream, s.waiting[:n])
		s.waiting, s.stream, s.whole = s.waiting[n:], s.stream-n, s.whole-n
	}
	if len(s.waiting) == 0 {
		s.waiting = nil
	}
	if s.out.Len() == 0 {
		return nil
	}
	_, err := s.out.WriteTo(s.conn)
	return err
}

// More reports whether data was read that Receive has not returned yet. Envoy writes only when
// it has handled all of that.
func (s *Stream) More() bool { return s.in.Buffered() > 0 }

// Receive waits for the next message, which the caller may use until the next call. If the
// server ends the stream, the error is its reason.
func (s *Stream) Receive() ([]byte, error) {
	s.free()
	var head [5]byte
	if err := s.data(head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if head[0] != 0 || size > maxMessage {
		return nil, fmt.Errorf("a message of %d bytes with the flags %d cannot be taken", size, head[0])
	}
	pool := mem.DefaultBufferPool()
	message := pool.Get(int(size))
	s.message = mem.NewBuffer(message, pool)
	if err := s.data(*message); err != nil {
		return nil, err
	}
	return *message, nil
}

// data fills to from data frames.
func (s *Stream) data(to []byte) error {
	for len(to) > 0 {
		if s.rest == 0 {
			if err := s.next(); err != nil {
				return err
			}
			continue
		}
		n, err := io.ReadFull(s.in, to[:min(len(to), s.rest)])
		if err != nil {
			return err
		}
		to, s.rest = to[n:], s.rest-n
		if s.rest == 0 && s.padding > 0 {
			if _, err := s.in.Discard(s.padding); err != nil {
				return err
			}
			s.padding = 0
		}
	}
	return nil
}

// next handles frames until one has data.
func (s *Stream) next() error {
	for s.rest == 0 {
		if err := s.control(); err != nil {
			return err
		}
		if s.out.Len() > 0 || s.rest == 0 && len(s.waiting) > 0 {
			if err := s.Flush(); err != nil {
				return err
			}
		}
	}
	return nil
}

// control handles one frame; of a data frame only the header.
func (s *Stream) control() error {
	var head [9]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return err
	}
	size := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
	kind, flags := http2.FrameType(head[3]), http2.Flags(head[4])
	of := binary.BigEndian.Uint32(head[5:]) &^ (1 << 31)
	if kind == http2.FrameData {
		return s.dataFrame(size, flags)
	}
	payload := make([]byte, size)
	if _, err := io.ReadFull(s.in, payload); err != nil {
		return err
	}
	switch kind {
	case http2.FrameHeaders, http2.FrameContinuation:
		return s.headerFrame(kind, flags, payload)
	case http2.FrameSettings:
		return s.settings(flags, payload)
	case http2.FramePing:
		if !flags.Has(http2.FlagPingAck) {
			s.frame(http2.FramePing, http2.FlagPingAck, 0, payload)
		}
	case http2.FrameWindowUpdate:
		if size != 4 {
			return errMalformed
		}
		if by := int64(binary.BigEndian.Uint32(payload) &^ (1 << 31)); of == 0 {
			s.whole += by
		} else {
			s.stream += by
		}
	case http2.FrameRSTStream:
		return errors.New("the server reset the stream")
	case http2.FrameGoAway:
		return fmt.Errorf("the server goes away: %q", payload[min(8, size):])
	}
	return nil
}

var errMalformed = errors.New("the server sent a malformed frame")

// dataFrame notes how much data follows. It updates the server's window when half of it is
// used.
func (s *Stream) dataFrame(size int, flags http2.Flags) error {
	if s.Heard != nil {
		s.Heard()
	}
	s.taken += size
	if flags.Has(http2.FlagDataPadded) {
		n, err := s.in.ReadByte()
		if err != nil {
			return err
		}
		if int(n)+1 > size {
			return errMalformed
		}
		s.padding = int(n)
		size -= s.padding + 1
	}
	s.rest = size
	if size == 0 && s.padding > 0 {
		if _, err := s.in.Discard(s.padding); err != nil {
			return err
		}
		s.padding = 0
	}
	if s.taken >= streamWindow/2 {
		s.update(0, s.taken)
		s.update(theStream, s.taken)
		s.taken = 0
	}
	return nil
}

func (s *Stream) settings(flags http2.Flags, payload []byte) error {
	if flags.Has(http2.FlagSettingsAck) {
		return nil
	}
	for ; len(payload) >= 6; payload = payload[6:] {
		if http2.SettingID(binary.BigEndian.Uint16(payload)) == http2.SettingInitialWindowSize {
			window := int64(binary.BigEndian.Uint32(payload[2:]))
			s.stream += window - s.first
			s.first = window
		}
	}
	s.frame(http2.FrameSettings, http2.FlagSettingsAck, 0, nil)
	return nil
}

// headerFrame decodes headers. Only the reason for the end of the stream is of interest.
func (s *Stream) headerFrame(kind http2.FrameType, flags http2.Flags, payload []byte) error {
	if kind == http2.FrameHeaders {
		padding := 0
		if flags.Has(http2.FlagHeadersPadded) && len(payload) > 0 {
			padding, payload = int(payload[0]), payload[1:]
		}
		if flags.Has(http2.FlagHeadersPriority) && len(payload) >= 5 {
			payload = payload[5:]
		}
		if padding > len(payload) {
			return errMalformed
		}
		s.headers = append(s.headers[:0], payload[:len(payload)-padding]...)
	} else {
		s.headers = append(s.headers, payload...)
	}
	if !flags.Has(http2.FlagHeadersEndHeaders) {
		return nil
	}
	return s.reason()
}

// reason returns why the stream ended according to the headers, nil if they do not say.
func (s *Stream) reason() error {
	clear(s.said)
	if _, err := s.decoder.Write(s.headers); err != nil {
		return fmt.Errorf("the headers of the stream: %w", err)
	}
	if err := s.decoder.Close(); err != nil {
		return fmt.Errorf("the headers of the stream: %w", err)
	}
	if code, ended := s.said["grpc-status"]; ended {
		return fmt.Errorf("the server ended the stream: code %s: %s", code, s.said["grpc-message"])
	}
	if status, first := s.said[":status"]; first && status != "200" {
		return fmt.Errorf("the server answers HTTP %s", status)
	}
	return nil
}
