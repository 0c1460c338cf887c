package xds

import "time"

// debounce spaces pushes: the first change after quiet is pushed at once; under
// load the next waits as long as a push takes, so that the server spends about
// half of its time on pushing, to a maximum. A push takes from its publication
// until all connections have it, or the maximum has passed. It has no clock and no
// content: what is pushed is the difference of two contexts, however many changes
// made it.
type debounce struct {
	max      time.Duration
	last     time.Time     // when the last push began
	underway bool          // whether it goes on
	cost     time.Duration // what a push takes, smoothed
}

// at returns when to push a change that is seen now.
func (d *debounce) at(now time.Time) time.Time {
	window := min(2*d.cost, d.max)
	if d.underway {
		window = d.max
	}
	if due := d.last.Add(window); due.After(now) {
		return due
	}
	return now
}

// began takes when a push began.
func (d *debounce) began(at time.Time) {
	if d.underway {
		d.took(at.Sub(d.last))
	}
	d.last, d.underway = at, true
}

// took takes the time that the push took.
func (d *debounce) took(t time.Duration) {
	d.cost = (d.cost + t) / 2
	d.underway = false
}
