package longtest

import (
	"os"
	"testing"
)

// OneGoroutine skips a long test of one goroutine under the race detector, which finds
// nothing there and makes it several times slower. It does not skip the test if
// HistoriesVariable is set.
func OneGoroutine(t testing.TB) {
	t.Helper()
	if raced && os.Getenv(HistoriesVariable) == "" {
		t.Skip("one goroutine: there is nothing for the race detector")
	}
}
