package serve

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

// TestRecentLog: the log keeps the newest lines that it passes on, within its bounds.
func TestRecentLog(t *testing.T) {
	t.Parallel()
	var passed strings.Builder
	recent := &recentLog{}
	log := slog.New(recent.keep(slog.NewTextHandler(&passed, nil)))
	log.Debug("too quiet")
	log.With("part", "store").WithGroup("g").Info("one", "a", 1)
	if got := string(recent.text()); got != passed.String() || !strings.Contains(got, "msg=one part=store g.a=1") || strings.Contains(got, "quiet") {
		t.Errorf("kept %q, passed on %q", got, passed.String())
	}
	for i := range recentLines + 10 {
		log.Info("line", "n", i)
	}
	if got := string(recent.text()); strings.Count(got, "\n") != recentLines || strings.Contains(got, " n=9\n") || !strings.Contains(got, " n=10\n") || !strings.HasSuffix(got, fmt.Sprintf(" n=%d\n", recentLines+9)) {
		t.Errorf("%d lines, from %q", strings.Count(got, "\n"), got[:100])
	}
	for range 2 * recentBytes / recentLineSize {
		log.Info(strings.Repeat("x", 2*recentLineSize))
	}
	got := string(recent.text())
	if len(got) > recentBytes || len(got) < recentBytes-2*recentLineSize || strings.Count(got, "... (cut)\n") != strings.Count(got, "\n") {
		t.Errorf("%d bytes in %d lines", len(got), strings.Count(got, "\n"))
	}
}
