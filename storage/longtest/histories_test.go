package longtest_test

import (
	"flag"
	"testing"

	"github.com/portolan-mesh/portolan/storage/longtest"
)

func TestEnvironmentAsksForManyHistories(t *testing.T) {
	checks, seed := flag.Int("rapid.checks", 100, "as rapid has it"), flag.Uint64("rapid.seed", 0, "as rapid has it")
	for value, want := range map[string]int{"": 3, "many": 50} {
		t.Setenv(longtest.HistoriesVariable, value)
		if got := longtest.Histories(3, 50); got != want {
			t.Errorf("%q: %d histories, want %d", value, got, want)
		}
		if longtest.Checks(3, 50); *checks != want {
			t.Errorf("%q: %d checks, want %d", value, *checks, want)
		}
		if *seed == 0 {
			t.Error("each run tries other histories")
		}
	}
	t.Setenv(longtest.HistoriesVariable, "1000")
	defer func() {
		if recover() == nil {
			t.Error("a value that means nothing is taken")
		}
	}()
	longtest.Histories(3, 50)
}
