// Package health is what is known of how workloads are, which the store keeps
// beside their WorkloadEntries.
package health

import "time"

// Report is what was last said of the health of a WorkloadEntry. It is never
// modified.
type Report struct {
	// Namespace and Name are those of the WorkloadEntry, and UID tells which one
	// of that name is meant: of another the report says nothing.
	Namespace, Name, UID string
	Healthy              bool
	// Reason is one word for programs, Message a sentence for people.
	Reason, Message string
	// Since is when Healthy last changed, Probed when it was last looked at.
	Since, Probed time.Time
	// Revision is that of the store at which it was said.
	Revision int64
}

// Path is the key of a report in a map of all.
func (r *Report) Path() string { return Path(r.Namespace, r.Name) }

// Path is the key of the report of a WorkloadEntry.
func Path(namespace, name string) string { return namespace + "/" + name }
