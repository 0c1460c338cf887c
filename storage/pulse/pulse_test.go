package pulse_test

import (
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/pulse"
)

func TestAllAreInStep(t *testing.T) {
	t.Parallel()
	first := pulse.Next(time.Second)
	for _, interval := range []time.Duration{time.Second, 2 * time.Second, 5 * time.Second} {
		now := time.Now()
		next := pulse.Next(interval)
		if next.Sub(first)%time.Second != 0 || !next.After(now) || next.Sub(now) > interval+time.Since(now) {
			t.Errorf("every %s: %s from now, %s after another", interval, next.Sub(now), next.Sub(first))
		}
	}
}
