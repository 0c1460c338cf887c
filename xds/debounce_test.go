package xds

import (
	"testing"
	"time"
)

func TestDebounce(t *testing.T) {
	t.Parallel()
	start := time.Unix(1000, 0)
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	d := debounce{max: 100 * time.Millisecond}
	if got := d.at(at(0)); !got.Equal(at(0)) {
		t.Errorf("the first change is pushed at %v, want at once", got.Sub(start))
	}
	d.began(at(0))
	if got := d.at(at(5)); !got.Equal(at(100)) {
		t.Errorf("while a push goes on a change is pushed at %v, want the maximum, or when it has ended", got.Sub(start))
	}
	d.took(20 * time.Millisecond) // smoothed: 10 ms
	if got := d.at(at(15)); !got.Equal(at(20)) {
		t.Errorf("under load a change is pushed at %v, want twice the cost after the last push", got.Sub(start))
	}
	if got := d.at(at(300)); !got.Equal(at(300)) {
		t.Errorf("after quiet a change is pushed at %v, want at once", got.Sub(start))
	}
	for i := range 20 {
		d.began(at(400 + 100*i)) // and none of them ends
	}
	d.took(time.Second)
	if got := d.at(at(2301)); !got.Equal(at(2400)) {
		t.Errorf("a change waits until %v, want the maximum", got.Sub(start))
	}
	d.began(at(2500))
	d.took(2 * time.Millisecond)
	if got := d.at(at(2501)); !got.Equal(at(2504)) {
		t.Errorf("after one fast push a change waits until %v, want twice its time", got.Sub(start))
	}
}
