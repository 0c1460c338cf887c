// Package maintenance is the HTTP side of `portolan store`, by which operators maintain
// a store, under Path of the config API, and of what else they do to a server.
//
// Each file is one capability: its JSON shapes, which the client shares, the small
// interface that does the work, and the handler between them (status.go, snapshot.go,
// compact.go, ...). Register adds them all to a config API, behind its guard,
// authentication and authorization, and answers errors as the API does. A capability
// that a store lacks is nil in Options; the server refuses it, and says what to use
// instead.
//
//	maintenance.Register(api, maintenance.Options{Status: report, Snapshots: snapshots})
package maintenance
