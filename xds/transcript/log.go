package transcript

import (
	"sync"
	"time"
)

// Event is what happened on a stream.
type Event string

// The events.
const (
	Connected    Event = "connected"
	Requested    Event = "requested"
	Sent         Event = "sent"
	Acknowledged Event = "acknowledged"
	Refused      Event = "refused"
	Ended        Event = "ended"
)

// Entry is one event. Its JSON form is an API.
type Entry struct {
	// Time is later than that of the entry before, so it says where a reader is.
	Time  time.Time `json:"time"`
	Event Event     `json:"event"`
	// Type is the type of the resources, such as CDS.
	Type string `json:"type,omitempty"`
	// Resources and Removed count those of a response, or the names that a request adds and
	// gives up. Bytes is the size of a response.
	Resources int `json:"resources,omitempty"`
	Removed   int `json:"removed,omitempty"`
	Bytes     int `json:"bytes,omitempty"`
	// Nonce names a response, and Version is its version.
	Nonce   string `json:"nonce,omitempty"`
	Version string `json:"version,omitempty"`
	// Took is how long the client took to answer.
	Took time.Duration `json:"took,omitempty"`
	// Message is why the client refuses, or why the stream ended.
	Message string `json:"message,omitempty"`
}

const (
	// maxEntries bounds the entries of one client.
	maxEntries = 64
	// MaxMessage bounds the bytes of a message.
	MaxMessage = 256
)

// Log has the last entries of one client. It is safe for concurrent use.
type Log struct {
	mu      sync.Mutex // guards the fields below, and the Traffic of the client's streams
	entries []Entry    // a ring once it has maxEntries
	next    int        // the oldest entry of the ring
	streams int        // how many are open
}

// add adds an entry; mu is held.
func (l *Log) add(e Entry) {
	e.Time = time.Now()
	if n := len(l.entries); n > 0 {
		if last := l.entries[(l.next+n-1)%n].Time; !e.Time.After(last) {
			e.Time = last.Add(1)
		}
	}
	if len(l.entries) < maxEntries {
		l.entries = append(l.entries, e)
		return
	}
	l.entries[l.next] = e
	l.next = (l.next + 1) % maxEntries
}

// After returns the entries after a time, the oldest first.
func (l *Log) After(at time.Time) []Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := []Entry{}
	for i := range l.entries {
		if e := l.entries[(l.next+i)%len(l.entries)]; e.Time.After(at) {
			out = append(out, e)
		}
	}
	return out
}
