package discovery

import "time"

// SourceStatus is how fresh what a registry serves of a source is, such as of a
// datacentre of Consul.
type SourceStatus struct {
	// Name tells it from the other sources of the registry; empty for the only one.
	Name  string
	State SourceState
	// AsOf is when what is served was last confirmed; zero while the source is live,
	// and where nothing is known.
	AsOf     time.Time
	Services int
	// Problem says what is wrong, empty for nothing.
	Problem string
}

// SourceState is whether a source is read.
type SourceState string

// The states of a source.
const (
	SourceSyncing   SourceState = "syncing"   // it is read for the first time, and not served yet
	SourceLive      SourceState = "live"      // what it has now is served
	SourceLastKnown SourceState = "lastKnown" // it cannot be read, and what it had is served
	SourceDegraded  SourceState = "degraded"  // some of what is served may be old
)

// SourceReporter is a registry that tells how its sources are. One that does not
// follows what the server has itself.
type SourceReporter interface {
	SourceStatuses() []SourceStatus
}
