// Package pulse has those look around in step who do so again and again: a process
// that has nothing to do is woken once for all of them.
package pulse

import "time"

var begun = time.Now()

// Next returns the next moment at which who looks around at an interval does: one of
// those that are whole intervals from the begin of the process.
func Next(interval time.Duration) time.Time {
	return begun.Add((time.Since(begun)/interval + 1) * interval)
}

// Until says how long it is until Next.
func Until(interval time.Duration) time.Duration { return time.Until(Next(interval)) }
