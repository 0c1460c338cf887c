package xds

import "time"

// debounce spaces pushes. The first change after quiet goes at once. Under load, twice the
// usual time of a push lies between the beginnings of two pushes, up to a maximum. So the
// server pushes for about half of the time. A push lasts from its publication until all
// connections have advanced; one that outlasts the maximum ends when the next begins. One
// slow push raises the usual time only in part, and one fast push lowers it at once: a
// small change after a storm of large ones does not wait as long as they did. debounce has
// no clock, and keeps no changes: a push is the difference of two contexts, however many
// changes made it.
type debounce struct {
	max      time.Duration
	last     time.Time     // when the last push began
	underway bool          // whether the last push has not ended
	cost     time.Duration // how long a push usually takes: it rises by halves, and falls at once
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

func (d *debounce) began(at time.Time) {
	if d.underway {
		d.took(at.Sub(d.last))
	}
	d.last, d.underway = at, true
}

// took notes how long the last push took.
func (d *debounce) took(t time.Duration) {
	d.cost = min(t, (d.cost+t)/2)
	d.underway = false
}
