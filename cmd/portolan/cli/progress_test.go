package cli

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// written is an output; a test can wait for what is written.
type written struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func (w *written) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	select {
	case w.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (w *written) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// TestProgress: the line replaces itself, has the time that has passed, and is erased.
func TestProgress(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	var out strings.Builder
	e := &Environment{Stderr: &out, Now: func() time.Time { return now }, Live: Live{Shown: true}}
	p := e.Progress()
	p.Tell("1 of 3")
	now = now.Add(1500 * time.Millisecond)
	p.Tell("2 of 3")
	p.Clear()
	p.Clear()
	p.Tell("3 of 3")
	p.Clear()
	if got, want := out.String(), "\r\x1b[K1 of 3  0s\r\x1b[K2 of 3  1.5s\r\x1b[K\r\x1b[K3 of 3  1.5s\r\x1b[K"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestProgressOfWhatIsQuick: what ends soon shows nothing, and neither does anything in a pipe.
func TestProgressOfWhatIsQuick(t *testing.T) {
	t.Parallel()
	for _, live := range []Live{{}, {Shown: true, After: time.Hour}} {
		var out strings.Builder
		p := (&Environment{Stderr: &out, Now: time.Now, Live: live}).Progress()
		p.Tell("1 of 3")
		p.Tell("2 of 3")
		p.Clear()
		if out.Len() > 0 {
			t.Errorf("%+v: %q", live, out.String())
		}
	}
}

// TestProgressOfWhatIsSlow: the line comes after a while, though nothing else is told, and goes on.
func TestProgressOfWhatIsSlow(t *testing.T) {
	t.Parallel()
	out := &written{more: make(chan struct{}, 1)}
	p := (&Environment{Stderr: out, Now: time.Now, Live: Live{Shown: true, After: time.Millisecond}}).Progress()
	p.Tell("1 of 3")
	p.Tell("2 of 3")
	for limit := time.After(10 * time.Second); strings.Count(out.String(), "2 of 3  ") < 2; {
		select {
		case <-out.more:
		case <-limit:
			t.Fatalf("%q", out)
		}
	}
	p.Clear()
	if got := out.String(); !strings.HasSuffix(got, "\r\x1b[K") {
		t.Errorf("%q", got)
	}
}
