// Package health is what is known of how workloads are, which the store keeps
// beside their WorkloadEntries.
package health

import (
	"strconv"
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

// Report is what was last said of the health of a WorkloadEntry. It is never
// modified.
type Report struct {
	// Namespace and Name are those of the WorkloadEntry, and UID tells which one
	// of that name is meant: of another the report says nothing.
	Namespace, Name, UID string
	Healthy              bool
	// Unknown says that an earlier report was taken back: nothing is known.
	Unknown bool
	// Reason is one word for programs, Message a sentence for people.
	Reason, Message string
	// Since is when Healthy last changed, Probed when it was last looked at.
	Since, Probed time.Time
	// Revision is that of the store at which it was said.
	Revision int64
}

// Of says whether the report is of the WorkloadEntry with a uid; nil is of none.
func (r *Report) Of(uid string) bool { return r != nil && r.UID == uid }

// Path is the key of a report in a map of all.
func (r *Report) Path() string { return Path(r.Namespace, r.Name) }

// Path is the key of the report of a WorkloadEntry.
func Path(namespace, name string) string { return namespace + "/" + name }
