package upkeep

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Defaults of Policy, and the shortest sensible retention: watches and paged lists need
// the recent past.
const (
	DefaultRetention = time.Hour
	MinRetention     = time.Minute
)

// Policy says when to do what. The zero value of each field means the default.
type Policy struct {
	// Retention is how long past revisions can be read; they may stay for another tenth
	// of it. The default is an hour.
	Retention time.Duration
	// DefragMin is the size of a database that is worth defragmenting when less
	// than half of it is in use. The default is 256 MiB.
	DefragMin int64
	// Quiet is how long a store must be without writes for the moment to count as quiet;
	// the default is 5 seconds. Patience is how long a defragmentation waits for such a
	// moment; the default is 10 minutes.
	Quiet, Patience time.Duration
	// Interval is the time between two looks; the default is 5 seconds.
	Interval time.Duration
	// BackoffMin and BackoffMax bound the time after a failed attempt to make room, or
	// to defragment, until the next. The defaults are 10 seconds and 5 minutes.
	BackoffMin, BackoffMax time.Duration
	// Now is the clock; the default is time.Now.
	Now func() time.Time
}

// complete returns the policy with its defaults, or what is wrong with it.
func (p Policy) complete() (Policy, error) {
	p.Retention = cmp.Or(p.Retention, DefaultRetention)
	p.DefragMin = cmp.Or(p.DefragMin, 256<<20)
	p.Quiet = cmp.Or(p.Quiet, 5*time.Second)
	p.Patience = cmp.Or(p.Patience, 10*time.Minute)
	p.Interval = cmp.Or(p.Interval, 5*time.Second)
	p.BackoffMin = cmp.Or(p.BackoffMin, 10*time.Second)
	p.BackoffMax = max(cmp.Or(p.BackoffMax, 5*time.Minute), p.BackoffMin)
	if p.Now == nil {
		p.Now = time.Now
	}
	if p.Retention < MinRetention {
		return p, fmt.Errorf("retention %s: keep at least %s", p.Retention, MinRetention)
	}
	if min(p.DefragMin, int64(p.Quiet), int64(p.Patience), int64(p.Interval), int64(p.BackoffMin)) < 0 {
		return p, errors.New("upkeep: a size or a time is negative")
	}
	return p, nil
}
