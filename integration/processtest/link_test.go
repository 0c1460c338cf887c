package processtest_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/integration/processtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echo answers each line with itself.
func echo(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { _, _ = io.Copy(c, c); _ = c.Close() })
		}
	})
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	return l.Addr().String()
}

// client sends lines and reads the answers.
type client struct {
	net.Conn
	in *bufio.Reader
}

func dial(t *testing.T, l *processtest.Link) *client {
	t.Helper()
	c, err := net.Dial("tcp", l.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{c, bufio.NewReader(c)}
}

// ask sends a line, and returns why there was no answer in time.
func (c *client) ask(line string, within time.Duration) error {
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		return err
	}
	_ = c.SetReadDeadline(time.Now().Add(within))
	got, err := c.in.ReadString('\n')
	if err == nil && got != line+"\n" {
		err = errors.New("another answer: " + got)
	}
	return err
}

func TestLink(t *testing.T) {
	t.Parallel()
	l := processtest.NewLink(t, echo(t), func(first []byte) string { return strings.Fields(string(first))[0] })
	const soon, long = 50 * time.Millisecond, 5 * time.Second
	a, b := dial(t, l), dial(t, l)
	for _, c := range []*client{a, b} {
		if err := c.ask("one x", long); err != nil {
			t.Fatal(err)
		}
	}
	l.Hold()
	if err := a.ask("two", soon); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("while held: %v", err)
	}
	l.Mend()
	_ = a.SetReadDeadline(time.Now().Add(long))
	if got, err := a.in.ReadString('\n'); err != nil || got != "two\n" {
		t.Errorf("what was held: %q, %v", got, err)
	}
	l.Cut()
	if err := a.ask("three", long); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("while cut: %v", err)
	}
	l.Mend()
	l.CutFrom("one")
	if err := dial(t, l).ask("one x", long); err == nil {
		t.Error("one who is cut off was heard")
	}
	other := dial(t, l)
	if err := other.ask("two x", long); err != nil {
		t.Error(err)
	}
	l.Swallow()
	if err := other.ask("lost", soon); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("while swallowed: %v", err)
	}
	l.Mend()
	if err := dial(t, l).ask("one x", long); err != nil {
		t.Error(err)
	}
}
