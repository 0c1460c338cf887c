package retry_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/retry"
)

func TestWaitsDoubleUpToTheLongest(t *testing.T) {
	t.Parallel()
	b := retry.NewExact(10*time.Millisecond, 70*time.Millisecond)
	for i, want := range []time.Duration{10, 20, 40, 70, 70} {
		if got := b.Next(); got != want*time.Millisecond {
			t.Errorf("wait %d is %s, want %d ms", i, got, want)
		}
	}
	b.Reset()
	if got := b.Next(); got != 10*time.Millisecond {
		t.Errorf("after Reset the wait is %s, want 10ms", got)
	}
}

func TestRandomWaitsStayInTheirRange(t *testing.T) {
	t.Parallel()
	const longest = 8 * time.Millisecond
	for name, test := range map[string]struct {
		b           *retry.Backoff
		least, most time.Duration
	}{
		"by half": {retry.New(longest, longest), longest / 2, longest * 3 / 2},
		"fair":    {retry.NewFair(longest, longest), 0, 2 * longest},
	} {
		seen := map[time.Duration]bool{}
		for range 1000 {
			wait := test.b.Next()
			if wait < test.least || wait > test.most {
				t.Fatalf("%s: a wait of %s, want one from %s to %s", name, wait, test.least, test.most)
			}
			seen[wait] = true
		}
		if len(seen) < 100 {
			t.Errorf("%s: only %d different waits of 1000", name, len(seen))
		}
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	b := retry.NewExact(time.Hour, time.Hour)
	time.AfterFunc(time.Millisecond, cancel)
	if err := b.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait returned %v, want that its context was cancelled", err)
	}
	if err := retry.Sleep(ctx, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Sleep returned %v, want that its context was cancelled", err)
	}
	if err := retry.NewExact(time.Nanosecond, time.Nanosecond).Wait(t.Context()); err != nil {
		t.Errorf("Wait returned %v", err)
	}
}
