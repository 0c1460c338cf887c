// Package health defines the health of workloads, which the store keeps beside their
// WorkloadEntries.
package health

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ChecksAnnotation of a WorkloadEntry, if "true", says that the entry gets no traffic until
// it is reported healthy.
const ChecksAnnotation = "proxy.istio.io/health-checks-enabled"

// ProbeAnnotation of a WorkloadEntry that is no group's has a probe, which the agent of its machine
// runs; package probe reads it.
const ProbeAnnotation = "portolan.io/probe"

// Checked says whether a WorkloadEntry with these annotations gets traffic only while it is
// reported healthy: as ChecksAnnotation says, and without that if it names a probe.
func Checked(annotations map[string]string) bool {
	said, set := annotations[ChecksAnnotation]
	if !set {
		_, set = annotations[ProbeAnnotation]
		return set
	}
	on, err := strconv.ParseBool(said)
	return err == nil && on
}

// The annotations of a WorkloadEntry that has proxies check it: a path that answers 200
// while the workload is healthy, and how often they ask.
const (
	CheckPathAnnotation     = "portolan.io/health-check-path"
	CheckIntervalAnnotation = "portolan.io/health-check-interval"
)

// The default and the limits of CheckIntervalAnnotation.
const (
	DefaultCheckInterval = 10 * time.Second
	MinCheckInterval     = 100 * time.Millisecond
	MaxCheckInterval     = time.Hour
)

const maxCheckPath = 1024

// Check is the HTTP health check of a workload by its proxies. The zero Check is none.
type Check struct {
	Path     string
	Interval time.Duration
}

// CheckOf reads the check that annotations ask for. If an annotation is wrong, it returns
// the error with the annotation's name, and no check.
func CheckOf(annotations map[string]string) (c Check, annotation string, err error) {
	path, asked := annotations[CheckPathAnnotation]
	interval, timed := annotations[CheckIntervalAnnotation]
	switch {
	case !asked && timed:
		return Check{}, CheckIntervalAnnotation, fmt.Errorf("goes with %s, which is not set", CheckPathAnnotation)
	case !asked:
		return Check{}, "", nil
	case !strings.HasPrefix(path, "/") || len(path) > maxCheckPath || strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r > '~' || r == '#' }):
		return Check{}, CheckPathAnnotation, fmt.Errorf("must be a path such as /healthz, of %d printable ASCII characters at most, is %q", maxCheckPath, path)
	}
	c = Check{Path: path, Interval: DefaultCheckInterval}
	if timed {
		if c.Interval, err = time.ParseDuration(interval); err != nil || c.Interval < MinCheckInterval || c.Interval > MaxCheckInterval {
			return Check{}, CheckIntervalAnnotation, fmt.Errorf("must be a duration from %s to %s, such as 5s, is %q", MinCheckInterval, MaxCheckInterval, interval)
		}
	}
	return c, "", nil
}

// Report is the last report of the health of a WorkloadEntry. It is never modified.
type Report struct {
	// Namespace, Name and UID are those of the WorkloadEntry. The report does not apply to
	// an object of that name with another UID.
	Namespace, Name, UID string
	Healthy              bool
	// Unknown says that nothing is known: an earlier report was withdrawn, or a source has one that
	// cannot be read. Odd is then what that says in place of True or False.
	Unknown bool
	Odd     string
	// Reason is one word for programs, Message a sentence for people.
	Reason, Message string
	// Since is when Healthy last changed, Probed when the server last probed it.
	Since, Probed time.Time
	// Revision is the revision of the store at the time of the report. It is OfSource for one that a
	// source other than the store has.
	Revision int64
}

// OfSource is the Revision of a report that a source other than the store has.
const OfSource = -1

// Of says whether the report is about the WorkloadEntry with a uid; a nil report is about
// none.
func (r *Report) Of(uid string) bool { return r != nil && r.UID == uid }

// Path returns the key of the report in a map of all reports.
func (r *Report) Path() string { return Path(r.Namespace, r.Name) }

// Path returns the key of the report of a WorkloadEntry.
func Path(namespace, name string) string { return namespace + "/" + name }
