package serve

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// logText is a log in memory.
type logText struct {
	mu  sync.Mutex
	out bytes.Buffer
}

// Write implements io.Writer.
func (l *logText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(b)
}

// count returns how many lines contain a text.
func (l *logText) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.out.String(), text)
}

// TestAMessageIsLoggedSoOften: lines of one message beyond the limit are dropped and counted,
// whoever logs them. Other messages pass.
func TestAMessageIsLoggedSoOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &logText{}
		logger := slog.New(limitLogs(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		for i := range 10_000 {
			logger.With("from", i).Warn("a client is odd", "nonce", fmt.Sprint(i))
			logger.Debug("a detail")
		}
		logger.Info("another")
		if n := out.count("a client is odd"); n != logBurst {
			t.Errorf("logged %d times at one time: want %d", n, logBurst)
		}
		if out.count("msg=another") != 1 || out.count("a detail") != 10_000 {
			t.Error("other messages are left out")
		}
		time.Sleep(logPause)
		synctest.Wait()
		if n := out.count(fmt.Sprintf(`message="a client is odd" lines=%d`, 10_000-logBurst)); n != 1 {
			t.Errorf("it is told %d times how many were left out", n)
		}
		before := out.count("a client is odd")
		logger.Warn("a client is odd")
		if n := out.count("a client is odd"); n != before+1 {
			t.Error("the message is left out when there is room again")
		}
	})
}

// TestMessagesThatAreMadeUpAreBounded: messages that contain varying text do not leak memory.
func TestMessagesThatAreMadeUpAreBounded(t *testing.T) {
	t.Parallel()
	h := limitLogs(slog.NewTextHandler(&logText{}, nil)).(*limitedLog)
	logger := slog.New(h)
	for i := range 3 * logMessages {
		logger.Info(fmt.Sprint("message ", i))
	}
	if n := len(h.limits.byMessage); n > logMessages {
		t.Errorf("%d messages are known", n)
	}
}
