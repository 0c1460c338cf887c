package doctor

import (
	"testing"
	"time"
)

// TestClock: a small difference is none, a larger one is noticed, and what certificates are not
// dated back by is a fault.
func TestClock(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[time.Duration]string{
		20 * time.Second:  "ok as that of s",
		-20 * time.Second: "ok as that of s",
		time.Minute:       "warning this machine is 1m0s ahead of s",
		-time.Minute:      "warning this machine is 1m0s behind s",
		3 * time.Hour:     "fault this machine is 3h0m0s ahead of s",
		-3 * time.Hour:    "fault this machine is 3h0m0s behind s",
	} {
		got := clock("s", ahead)
		if text := string(got.Level) + " " + got.Text; text != want || (got.Do == "") != (got.Level == OK) {
			t.Errorf("%s: %+v, want %q", ahead, got, want)
		}
	}
}
