package raw_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/integration/load/raw"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo is a server that sends every message back. It ends a stream with the text of a message
// that begins with "end".
func echo(t *testing.T, options ...grpc.ServerOption) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer(append(options, grpc.ForceServerCodecV2(raw.Codec{}), grpc.MaxRecvMsgSize(64<<20))...)
	g.RegisterService(&grpc.ServiceDesc{ServiceName: "test.Echo", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: "Follow", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, s grpc.ServerStream) error {
			for {
				var f raw.Frame
				if err := s.RecvMsg(&f); err != nil {
					return err
				}
				if bytes.HasPrefix(f.Bytes, []byte("end")) {
					return status.Error(codes.FailedPrecondition, string(f.Bytes))
				}
				// It sends a copy: a freed buffer may be reused while it is being sent.
				if err := s.SendMsg(&raw.Frame{Bytes: bytes.Clone(f.Bytes)}); err != nil {
					return err
				}
				f.Free()
			}
		},
	}}}, nil)
	var running sync.WaitGroup
	running.Go(func() { _ = g.Serve(l) })
	t.Cleanup(func() { g.Stop(); running.Wait() })
	return l.Addr().String()
}

func open(t *testing.T, address, method string) *raw.Stream {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	s, err := raw.Open(ctx, address, method)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(); cancel() })
	return s
}

// TestMessagesOfAnySize: messages go both ways, even if they are larger than the windows of
// either side, and many before the first is read.
func TestMessagesOfAnySize(t *testing.T) {
	t.Parallel()
	goBothWays(t, open(t, echo(t), "/test.Echo/Follow"))
}

// TestMessagesOverMutualTLS: messages go both ways likewise, but only for clients with a
// certificate.
func TestMessagesOverMutualTLS(t *testing.T) {
	t.Parallel()
	authority := securetest.New(t, "raw")
	pair := func() []tls.Certificate {
		return []tls.Certificate{*securetest.TLS(authority.Issue(t, securetest.Leaf{IPs: []string{"127.0.0.1"}}))}
	}
	address := echo(t, grpc.Creds(credentials.NewTLS(&tls.Config{
		Certificates: pair(), ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: authority.Pool(),
	})))
	const method = "/test.Echo/Follow"
	s, err := raw.OpenTLS(t.Context(), address, method, &tls.Config{Certificates: pair(), RootCAs: authority.Pool()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	goBothWays(t, s)

	// With TLS 1.3 the client's handshake ends before the server refuses it.
	nobody, err := raw.OpenTLS(t.Context(), address, method, &tls.Config{RootCAs: authority.Pool()})
	if err == nil {
		_, err = nobody.Receive()
		nobody.Close()
	}
	if err == nil {
		t.Error("a client without a certificate is served")
	}
	if _, err := raw.OpenTLS(t.Context(), address, method, &tls.Config{Certificates: pair(), RootCAs: x509.NewCertPool()}); err == nil {
		t.Error("a server of an authority that is not trusted is believed")
	}
}

func goBothWays(t *testing.T, s *raw.Stream) {
	t.Helper()
	var sent [][]byte
	for _, size := range []int{1, 0, 100, 16 << 10, 65535, 1 << 20, 40 << 20, 3} {
		message := bytes.Repeat([]byte{byte(size), byte(size >> 8), 7}, size/3+1)[:size]
		sent = append(sent, message)
		s.Send(message)
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	for i, want := range sent {
		got, err := s.Receive()
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("message %d: %d bytes, want those %d that were sent", i, len(got), len(want))
		}
	}
}

// TestTheReasonOfAnEnd: the error of an ended stream is the server's reason.
func TestTheReasonOfAnEnd(t *testing.T) {
	t.Parallel()
	address := echo(t)
	s := open(t, address, "/test.Echo/Follow")
	s.Send([]byte("end of it"))
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Receive(); err == nil || !strings.Contains(err.Error(), "code 9: end of it") {
		t.Errorf("the reason is %v", err)
	}
	if _, err := open(t, address, "/test.Echo/Absent").Receive(); err == nil || !strings.Contains(err.Error(), "code 12") {
		t.Errorf("of a method that there is not: %v", err)
	}
}

// TestAStreamEndsWithItsContext, even while it waits.
func TestAStreamEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	s, err := raw.Open(ctx, echo(t), "/test.Echo/Follow")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ended := make(chan error, 1)
	go func() { _, err := s.Receive(); ended <- err }()
	cancel()
	if err := <-ended; err == nil || err == io.EOF {
		t.Errorf("a stream that is given up ends with %v", err)
	}
	if _, err := raw.Open(ctx, "127.0.0.1:1", "/test.Echo/Follow"); err == nil {
		t.Error("nobody listens, and there is a stream")
	}
}

// TestFields finds fields without decoding their content.
func TestFields(t *testing.T) {
	t.Parallel()
	message := raw.AppendText(nil, 3, "three")
	message = append(message, 0x08, 0x96, 0x01) // field 1, a number
	message = raw.AppendText(message, 5, "")
	message = raw.AppendText(message, 3, "again")
	if got := string(raw.Field(message, 3)); got != "again" {
		t.Errorf("field 3 is %q", got)
	}
	if got := raw.Field(message, 5); got != nil {
		t.Errorf("field 5 is %q", got)
	}
	if got := raw.Field(message[:len(message)-1], 3); got != nil {
		t.Errorf("field 3 of half a message is %q", got)
	}
}
