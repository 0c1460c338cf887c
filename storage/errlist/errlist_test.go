package errlist_test

import (
	"errors"
	"net"
	"testing"

	"github.com/portolan-mesh/portolan/storage/errlist"
)

func TestFormats(t *testing.T) {
	t.Parallel()
	one, two := []error{errors.New("a")}, []error{errors.New("a"), errors.New("b")}
	for got, want := range map[string]string{
		errlist.OneLine(one): "a", errlist.OneLine(two): "a; b", errlist.Lines(one): "a", errlist.Lines(two): "2 faults:\n  a\n  b",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// TestCause: the same cause gives the same text each time.
func TestCause(t *testing.T) {
	t.Parallel()
	from, to := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 40001}, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 443}
	err := &net.OpError{Op: "read", Net: "tcp", Source: from, Addr: to, Err: errors.New("connection reset\nby peer")}
	if got := errlist.Cause(err); got != "read tcp 127.0.0.1:443: connection reset by peer" {
		t.Errorf("the cause is %q", got)
	}
	if errlist.Cause(nil) != "" {
		t.Error("nothing has a cause")
	}
}
