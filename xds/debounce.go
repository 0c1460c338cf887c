package xds

import "time"

// debounce spaces pushes: the first change after quiet is pushed at once; under
// load the next waits as long as a push takes, so that the server spends about
// half of its time on pushing, to a maximum. It has no clock and no content:
// what is pushed is the difference of two contexts, however many changes made
// it.
type debounce struct {
	max  time.Duration
	last time.Time     // when the last push began
	cost time.Duration // what a push takes, smoothed
}

// at returns when to push a change that is seen now.
func (d *debounce) at(now time.Time) time.Time {
	window := min(2*d.cost, d.max)
	if due := d.last.Add(window); due.After(now) {
		return due
	}
	return now
}

// pushed takes the time that a push took.
func (d *debounce) pushed(began time.Time, took time.Duration) {
	d.last = began
	d.cost = (d.cost + took) / 2
}
