package status

import "time"

// Clients are the conditions that clients, such as controllers, set on an object: its status
// beside what servers report. They are never modified.
type Clients struct {
	// UID is that of the object. The conditions are not about another one of that name.
	UID string
	// Conditions have a type each, in the order in which they were first set.
	Conditions []ClientCondition
	// Revision is the revision of the store at which they were written.
	Revision int64
}

// ClientCondition is a condition that a client set.
type ClientCondition struct {
	Condition
	// Probed is when the client last looked, and Generation the generation of the object that it
	// looked at; zero if it does not say.
	Probed     time.Time
	Generation int64
	// Manager is the field manager that set the condition.
	Manager string
}

// Of says whether the conditions are about the object with a uid.
func (c *Clients) Of(uid string) bool { return c != nil && c.UID == uid }

// ClientsOf returns the conditions that clients set on the object with a uid, nil for none.
func (r *Report) ClientsOf(uid string) *Clients {
	if r == nil || !r.Clients.Of(uid) {
		return nil
	}
	return r.Clients
}

// Latest returns the revision at which servers or clients last reported on the object with a uid,
// 0 for none.
func (r *Report) Latest(uid string) int64 {
	var latest int64
	if r.Of(uid) {
		latest = r.Revision
	}
	if c := r.ClientsOf(uid); c != nil {
		latest = max(latest, c.Revision)
	}
	return latest
}

// Written returns the revision at which servers or clients last reported.
func (r *Report) Written() int64 {
	if r.Clients == nil {
		return r.Revision
	}
	return max(r.Revision, r.Clients.Revision)
}

// WithServers returns the report with another part of the servers, nil for none, and WithClients
// with another part of clients. Both return nil if nothing is left.
func (r *Report) WithServers(part *Report) *Report {
	switch {
	case r == nil || r.Clients == nil:
		return part
	case part == nil:
		return &Report{Clients: r.Clients}
	}
	out := *part
	out.Clients = r.Clients
	return &out
}

// WithClients is WithServers for the part of clients.
func (r *Report) WithClients(part *Clients) *Report {
	var out Report
	if r != nil {
		out = *r
	}
	out.Clients = part
	if part == nil && out.UID == "" {
		return nil
	}
	return &out
}

// UpTo returns the parts that existed at a revision, nil for none.
func (r *Report) UpTo(revision int64) *Report {
	out := r
	if r.Revision > revision {
		out = out.WithServers(nil)
	}
	if c := r.Clients; c != nil && c.Revision > revision {
		out = out.WithClients(nil)
	}
	return out
}
