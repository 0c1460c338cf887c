package xds

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestAnAlarmIsSetForTheEarliest: what is put off does not set it anew, and it rings
// in time for all that was asked for.
func TestAnAlarmIsSetForTheEarliest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		rings := make(chan time.Time, 10)
		a := newAlarm(func() { rings <- time.Now() })
		defer a.stop()
		a.set(time.Time{})
		a.set(began.Add(time.Minute))
		set := a.at
		for range 10 {
			time.Sleep(time.Second)
			a.set(time.Now().Add(time.Minute))
		}
		if a.at != set {
			t.Errorf("put off, it was set anew for %v later", a.at.Sub(set))
		}
		a.set(began.Add(30 * time.Second))
		if after := (<-rings).Sub(began); after != 30*time.Second {
			t.Errorf("it rang after %v", after)
		}
		began = time.Now()
		a.set(began.Add(time.Second)) // whoever has heard it sets it again
		if after := (<-rings).Sub(began); after != time.Second {
			t.Errorf("set again it rang after %v", after)
		}
		time.Sleep(time.Hour)
		if len(rings) > 0 {
			t.Error("it rang twice")
		}
	})
}

// TestAWatchdogBarksAtWhatTakesTooLong, and at nothing else.
func TestAWatchdogBarksAtWhatTakesTooLong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		barks := make(chan time.Time, 10)
		w := newWatchdog(time.Minute, func() { barks <- time.Now() })
		defer w.stop()
		time.Sleep(90 * time.Second)
		for range 10 {
			w.begin(time.Now())
			time.Sleep(50 * time.Second)
			w.end()
		}
		if len(barks) > 0 {
			t.Fatalf("it barked %d times at what was in time", len(barks))
		}
		began := time.Now()
		w.begin(began)
		if after := (<-barks).Sub(began); after != time.Minute {
			t.Errorf("it barked after %v", after)
		}
	})
}
