// Package health is what is known of how workloads are, which the store keeps
// beside their WorkloadEntries.
package health

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ChecksAnnotation of a WorkloadEntry, "true", says that it is of no use until
// it was reported to be healthy.
const ChecksAnnotation = "proxy.istio.io/health-checks-enabled"

// Checked says whether the health of a WorkloadEntry with some annotations
// matters.
func Checked(annotations map[string]string) bool {
	on, err := strconv.ParseBool(annotations[ChecksAnnotation])
	return err == nil && on
}

// The annotations of a WorkloadEntry that has proxies check it: a path that answers 200
// while the workload is healthy, and how often they ask.
const (
	CheckPathAnnotation     = "portolan.io/health-check-path"
	CheckIntervalAnnotation = "portolan.io/health-check-interval"
)

// The limits of CheckIntervalAnnotation, and what holds without it.
const (
	DefaultCheckInterval = 10 * time.Second
	MinCheckInterval     = 100 * time.Millisecond
	MaxCheckInterval     = time.Hour
)

// maxCheckPath bounds the path of a check.
const maxCheckPath = 1024

// Check is how proxies check a workload by HTTP. The zero Check is none.
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

// Report is what was last said of the health of a WorkloadEntry. It is never
// modified.
type Report struct {
	// Namespace and Name are the WorkloadEntry's, and UID tells which object of that name
	// the report is about: it says nothing of another.
	Namespace, Name, UID string
	Healthy              bool
	// Unknown says that an earlier report was taken back: nothing is known.
	Unknown bool
	// Reason is one word for programs, Message a sentence for people.
	Reason, Message string
	// Since is when Healthy last changed, Probed when the server last probed it.
	Since, Probed time.Time
	// Revision is the revision of the store at the time of the report.
	Revision int64
}

// Of says whether the report is of the WorkloadEntry with a uid; nil is of none.
func (r *Report) Of(uid string) bool { return r != nil && r.UID == uid }

// Path is the key of a report in a map of all.
func (r *Report) Path() string { return Path(r.Namespace, r.Name) }

// Path is the key of the report of a WorkloadEntry.
func Path(namespace, name string) string { return namespace + "/" + name }
