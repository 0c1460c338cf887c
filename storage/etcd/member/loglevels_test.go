package member_test

import (
	"syscall"
	"testing"

	"github.com/portolan-mesh/portolan/storage/logtest"
)

// TestLogLevelsOfTheChild: the child hears of its levels when it starts, of changes while it runs, and
// of the newest when it is started again.
func TestLogLevelsOfTheChild(t *testing.T) {
	t.Parallel()
	heard, dir := &logtest.Log{}, t.TempDir()
	opts := childOptions(t, dir)
	opts.Stderr, opts.LogLevels = heard, "first"
	child, _ := startChild(t, opts)
	await := func(text string, times int) {
		t.Helper()
		eventually(t, text, func() bool { return heard.Count(`are=`+text) >= times })
	}
	await("first", 1)
	child.SetLogLevels("second")
	await("second", 1)
	child.SetLogLevels("second")
	child.SetLogLevels("third")
	await("third", 1)
	if n := heard.Count("are=second"); n != 1 {
		t.Errorf("it was told %d times of the same", n)
	}
	kill(t, readLock(t, dir).PID, syscall.SIGKILL)
	await("third", 2)
}
