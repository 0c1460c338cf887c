package secure_test

import (
	"io"
	"net"
	"testing"

	"github.com/portolan-mesh/portolan/discovery/identity/secure"
)

// TestConnsHangUp: HangUp closes the connection of one client only.
func TestConnsHangUp(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns secure.Conns
	l := conns.Track(inner)
	defer l.Close()
	clients, accepted := make([]net.Conn, 2), make([]net.Conn, 2)
	for i := range clients {
		if clients[i], err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		defer clients[i].Close()
		if accepted[i], err = l.Accept(); err != nil {
			t.Fatal(err)
		}
		defer accepted[i].Close()
	}
	conns.HangUp(clients[0].LocalAddr())
	conns.HangUp(clients[0].LocalAddr()) // a second call does nothing
	if _, err := clients[0].Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the client that was hung up on reads %v", err)
	}
	if _, err := accepted[1].Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if n, err := clients[1].Read(make([]byte, 1)); n != 1 || err != nil {
		t.Errorf("the other client reads %d bytes and %v", n, err)
	}
}

// TestConnsTellWhenAClientMoved: reads and writes are reported separately, and nothing for a
// client that is not there.
func TestConnsTellWhenAClientMoved(t *testing.T) {
	t.Parallel()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns secure.Conns
	l := conns.Track(inner)
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	remote := client.LocalAddr()
	heard, took := conns.LastActivity(remote)
	if heard.IsZero() || took.IsZero() {
		t.Errorf("a client that has just come was heard at %s and took at %s", heard, took)
	}
	if _, err := server.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	heardNow, tookNow := conns.LastActivity(remote)
	if !heardNow.Equal(heard) || !tookNow.After(took) {
		t.Errorf("with a byte taken it was heard %s later and took %s later", heardNow.Sub(heard), tookNow.Sub(took))
	}
	if _, err := client.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := server.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if now, _ := conns.LastActivity(remote); !now.After(heard) {
		t.Error("with a byte said it was not heard")
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if said, took := conns.LastActivity(remote); !said.IsZero() || !took.IsZero() {
		t.Error("a client that is gone moves")
	}
}
