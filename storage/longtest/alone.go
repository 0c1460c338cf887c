package longtest

import (
	"os"
	"testing"
)

// OneGoroutine skips a long test under the race detector, where all that it runs is one
// goroutine: there it finds nothing that it does not find without the detector, and takes
// several times as long. Where the environment asks for many histories it runs.
func OneGoroutine(t testing.TB) {
	t.Helper()
	if raced && os.Getenv(HistoriesVariable) == "" {
		t.Skip("one goroutine: there is nothing for the race detector")
	}
}
