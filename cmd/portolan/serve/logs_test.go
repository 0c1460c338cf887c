package serve

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/portolan-mesh/portolan/storage/logtest"
)

// TestAMessageIsLoggedSoOften: lines of one message beyond the limit are dropped and counted,
// whoever logs them. Other messages pass.
func TestAMessageIsLoggedSoOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		out := &logtest.Log{}
		logger := slog.New(limitLogs(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug})))
		for i := range 10_000 {
			logger.With("from", i).Warn("a client is odd", "nonce", fmt.Sprint(i))
			logger.Debug("a detail")
		}
		logger.Info("another")
		if n := out.Count("a client is odd"); n != logBurst {
			t.Errorf("logged %d times at one time: want %d", n, logBurst)
		}
		if out.Count("msg=another") != 1 || out.Count("a detail") != 10_000 {
			t.Error("other messages are left out")
		}
		time.Sleep(logPause)
		synctest.Wait()
		if n := out.Count(fmt.Sprintf(`message="a client is odd" lines=%d`, 10_000-logBurst)); n != 1 {
			t.Errorf("it is told %d times how many were left out", n)
		}
		before := out.Count("a client is odd")
		logger.Warn("a client is odd")
		if n := out.Count("a client is odd"); n != before+1 {
			t.Error("the message is left out when there is room again")
		}
	})
}

// TestMessagesThatAreMadeUpAreBounded: messages that contain varying text do not leak memory.
func TestMessagesThatAreMadeUpAreBounded(t *testing.T) {
	t.Parallel()
	h := limitLogs(slog.NewTextHandler(&logtest.Log{}, nil)).(*limitedLog)
	logger := slog.New(h)
	for i := range 3 * logMessages {
		logger.Info(fmt.Sprint("message ", i))
	}
	if n := len(h.limits.byMessage); n > logMessages {
		t.Errorf("%d messages are known", n)
	}
}
