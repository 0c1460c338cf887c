package childprocess_test

import (
	"bytes"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/storage/childprocess"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// written gets a value for each write.
type written chan struct{}

func (w written) Write(b []byte) (int, error) {
	w <- struct{}{}
	return len(b), nil
}

// TestWhyAProcessEnded: the cause is the exit status with the last words, the reason of whoever
// killed it, or the signal alone.
func TestWhyAProcessEnded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		script string
		end    func(*childprocess.Process) // once it has written something
		cause  string
		trace  string // of a panic
	}{
		"by itself":     {script: "echo one; echo two >&2; exit 3", cause: "exit status 3: two"},
		"without words": {script: "exit 0", cause: "exit status 0"},
		"by a panic":    {script: "echo 'panic: no disk'; echo 'goroutine 1'; exit 2", cause: "exit status 2: panic: no disk", trace: "goroutine 1\n"},
		"by a signal":   {script: "echo busy; kill -KILL $$", cause: "signal: killed"},
		"condemned": {script: "echo up; exec sleep 60", cause: "it did not answer",
			end: func(p *childprocess.Process) { p.Condemn("it did not answer") }},
		"asked to end": {script: "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done", cause: "exit status 0: bye",
			end: func(p *childprocess.Process) {
				if p.Stop(30 * time.Second) {
					t.Error("it was killed")
				}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := make(written, 100)
			p, err := childprocess.Start(childprocess.Command{Path: "/bin/sh", Args: []string{"-c", c.script}, Output: out})
			if err != nil {
				t.Fatal(err)
			}
			if c.end != nil {
				<-out
				c.end(p)
			}
			<-p.Done()
			if got := p.Cause().Error(); got != c.cause || p.Running() || p.Ended().IsZero() {
				t.Errorf("it ended by %q, want %q", got, c.cause)
			}
			if trace, ok := p.Panicked(); trace != c.trace || ok != (c.trace != "") {
				t.Errorf("the trace is %q, %v", trace, ok)
			}
		})
	}
}

// TestStopKills: a process that does not end when it is asked to is killed.
func TestStopKills(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	asked := false
	p, err := childprocess.Start(childprocess.Command{Path: "/bin/sh", Args: []string{"-c", "exec sleep 60"}, Output: &out, End: func() { asked = true }})
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(-p.PID(), 0); err != nil {
		t.Errorf("it has no group of its own: %v", err)
	}
	if !p.Stop(10*time.Millisecond) || !asked || p.Running() {
		t.Error("it was not asked, or not killed")
	}
}
