package reliability

import (
	"maps"
	"slices"
)

// Servers write into the status of an object how far it has come. Each such write makes a new
// version of the object that no client wrote, but that conflicts with no client's write. A
// history is judged by the versions that clients wrote.

// Said has the revisions at which servers wrote the status of each key.
type Said map[Key]map[int64]bool

// NewSaid returns the revisions of events, whose values it ignores.
func NewSaid(events []Event) Said {
	out := Said{}
	for _, e := range events {
		if out[e.Key] == nil {
			out[e.Key] = map[int64]bool{}
		}
		out[e.Key][e.Revision] = true
	}
	return out
}

// AsWritten returns the history with each version that a status made replaced by the version
// that a client wrote. It drops watch events for a status alone. A version that is no status of
// the object, or a status of other content, stays as it is for the checkers.
func (h *History) AsWritten() *History {
	out := *h
	out.Calls, out.Lists = slices.Clone(h.Calls), slices.Clone(h.Lists)
	out.Settled, out.Watches = slices.Clone(h.Settled), slices.Clone(h.Watches)
	for i := range out.Calls {
		h.callWritten(&out.Calls[i])
	}
	for i := range out.Lists {
		out.Lists[i].Objects = h.allWritten(out.Lists[i].Objects)
	}
	for i := range out.Settled {
		out.Settled[i].Objects = h.allWritten(out.Settled[i].Objects)
	}
	for i := range out.Watches {
		h.watchWritten(&out.Watches[i])
	}
	return &out
}

func (h *History) callWritten(c *Call) {
	if len(c.Writes) == 0 {
		c.Found = h.written(c.Key, c.Found)
		c.Revision = c.Found.Revision
	}
	c.Writes = slices.Clone(c.Writes)
	for i := range c.Writes {
		w := &c.Writes[i]
		w.Given = h.givenAs(w.Key, w.Given, c.Class)
		if w.Unchanged {
			c.Revision = h.writtenAt(w.Key, c.Revision)
		}
	}
}

// givenAs returns the revision of the client's write that a condition means. A server may or
// may not accept an outdated status version as the object's written version. If the object has
// a later status for the same content, either counts as its revision.
func (h *History) givenAs(key Key, given int64, class Class) int64 {
	at := h.Truth.At(key, given).Revision
	if class == Conflict || at == 0 {
		return h.writtenAt(key, given)
	}
	for said := range h.Said[key] {
		if said >= given && h.Truth.At(key, said).Revision == at {
			return at
		}
	}
	return given
}

// writtenAt returns the revision of the client's write behind a shown revision.
func (h *History) writtenAt(key Key, revision int64) int64 {
	if !h.Said[key][revision] {
		return revision
	}
	return h.Truth.At(key, revision).Revision
}

func (h *History) written(key Key, v Version) Version {
	if at := h.writtenAt(key, v.Revision); h.Truth.At(key, v.Revision).Value == v.Value {
		v.Revision = at
	}
	return v
}

func (h *History) allWritten(objects map[Key]Version) map[Key]Version {
	out := map[Key]Version{}
	for key, v := range objects {
		out[key] = h.written(key, v)
	}
	return out
}

// watchWritten drops the events of statuses from a watch. It keeps one whose write the watch
// did not report, since the watch has passed that over.
func (h *History) watchWritten(w *Watch) {
	w.Held = h.allWritten(w.Held)
	held := maps.Clone(w.Held)
	events := w.Events
	w.Events = nil
	for _, e := range events {
		if e.Type == Added || e.Type == Modified {
			v := h.written(e.Key, Version{Revision: e.Revision, Value: e.Value})
			switch {
			case e.Type == Modified && v.Revision != e.Revision && v == held[e.Key]:
				continue
			case h.listed(w.Replica, v.Revision): // the replica learnt both in one step
				e.Revision = v.Revision
			}
		}
		if e.Type != Bookmark {
			held = Apply(held, e)
		}
		w.Events = append(w.Events, e)
	}
}
