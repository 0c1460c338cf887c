// Package pulse aligns periodic checks, so that an idle process wakes once for all of them.
package pulse

import "time"

var begun = time.Now()

// Next returns the next time for a check that runs at an interval. Such times are whole
// intervals after the start of the process.
func Next(interval time.Duration) time.Time {
	return begun.Add((time.Since(begun)/interval + 1) * interval)
}

// Until returns how long it is until Next.
func Until(interval time.Duration) time.Duration { return time.Until(Next(interval)) }
