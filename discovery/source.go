package discovery

import "time"

// SourceStatus says how fresh the registry's content of one source is, such as of a datacentre
// of Consul.
type SourceStatus struct {
	// Name is the name of the source within the registry; empty for the only one.
	Name  string
	State SourceState
	// AsOf is when the served content was last confirmed; zero while the source is live, or if
	// nothing is known.
	AsOf     time.Time
	Services int
	// Problem says what is wrong, empty if nothing is.
	Problem string
}

// SourceState says whether a source can be read.
type SourceState string

// The states of a source.
const (
	SourceSyncing   SourceState = "syncing"   // being read for the first time, not served yet
	SourceLive      SourceState = "live"      // its current content is served
	SourceLastKnown SourceState = "lastKnown" // it cannot be read; its last known content is served
	SourceDegraded  SourceState = "degraded"  // some of the served content may be old
)

// SourceReporter is a registry that reports the status of its sources. A registry without it
// follows only the server's own data.
type SourceReporter interface {
	SourceStatuses() []SourceStatus
}
