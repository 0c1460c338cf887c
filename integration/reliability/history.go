package reliability

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// Key is an object: kind/namespace/name.
type Key string

// Verb is the kind of a write.
type Verb string

// The verbs. Create fails if the object exists, Update and Delete fail if it does not. Put
// creates or replaces it.
const (
	Create Verb = "create"
	Update Verb = "update"
	Put    Verb = "put"
	Delete Verb = "delete"
)

// Class is the outcome of a call.
type Class string

// The classes. A write with OK was done. One with Unknown may have been done, or may still be.
// A write with another class was not done and never will be.
const (
	OK          Class = "ok"
	Conflict    Class = "conflict"
	Exists      Class = "exists"
	NotFound    Class = "not found"
	Unavailable Class = "unavailable"
	NotYet      Class = "not yet"
	Refused     Class = "refused"
	Unknown     Class = "unknown"
)

// Version is the state of a key: the revision of its last change, and its value. No two writes
// of a run write the same value to a key; 0 is no object.
type Version struct {
	Revision int64 `json:"revision"`
	Value    int64 `json:"value"`
}

// Write is the write of one object in a call.
type Write struct {
	Key  Key  `json:"key"`
	Verb Verb `json:"verb"`
	// Given is the version that the stored object must have; 0 is any.
	Given int64 `json:"given,omitempty"`
	Value int64 `json:"value,omitempty"`
	// Unchanged means that the answer was that nothing had to be written.
	Unchanged bool `json:"unchanged,omitempty"`
}

// Call is one call of a client. Times are of the run's monotonic clock.
type Call struct {
	Client  int           `json:"client"`
	Replica string        `json:"replica"`
	Start   time.Duration `json:"start"`
	End     time.Duration `json:"end"`

	// Writes are the objects of a write, written as one. A read has none.
	Writes []Write `json:"writes,omitempty"`
	// Same means that the call writes what is stored already.
	Same bool `json:"same,omitempty"`

	// Key is the object of a read. The answer must not be older than revision Least. If
	// Consistent, it must include every write acknowledged before the call.
	Key        Key   `json:"key,omitempty"`
	Consistent bool  `json:"consistent,omitempty"`
	Least      int64 `json:"least,omitempty"`

	Class Class `json:"class"`
	// Revision is the one that a write made; for a read that of Found.
	Revision int64   `json:"revision,omitempty"`
	Found    Version `json:"found,omitzero"`
	Error    string  `json:"error,omitempty"`
}

// List is a list of one kind in one namespace, "Kind/namespace".
type List struct {
	Replica string        `json:"replica"` // with its incarnation: identifies one process
	Client  int           `json:"client"`
	Start   time.Duration `json:"start"`
	End     time.Duration `json:"end"`
	Scope   string        `json:"scope"`
	Least   int64         `json:"least,omitempty"`
	// Revision is the revision of the list, and Objects is its content.
	Revision int64           `json:"revision"`
	Objects  map[Key]Version `json:"objects"`
}

// Kinds of events of a watch.
const (
	Added    = "ADDED"
	Modified = "MODIFIED"
	Deleted  = "DELETED"
	Bookmark = "BOOKMARK"
)

// Delivery is one event of a watch.
type Delivery struct {
	At       time.Duration `json:"at"`
	Type     string        `json:"type"`
	Key      Key           `json:"key,omitempty"`
	Revision int64         `json:"revision"`
	Value    int64         `json:"value,omitempty"`
}

// Watch is one connection of a watch of the API. It began at revision From. The watcher then
// held Held, from an earlier connection or a list.
type Watch struct {
	Replica string          `json:"replica"` // with its incarnation
	Scope   string          `json:"scope"`
	From    int64           `json:"from"`
	Held    map[Key]Version `json:"held"`
	Events  []Delivery      `json:"events"`
	// Resumed means that Held comes from an earlier connection.
	Resumed bool `json:"resumed,omitempty"`
}

// Push is one response to a proxy.
type Push struct {
	Replica string        `json:"replica"` // with its incarnation
	Stream  string        `json:"stream"`
	At      time.Duration `json:"at"`
	Type    string        `json:"type"`
	// Revision is the revision that the response was built from, according to its nonce.
	Revision int64 `json:"revision"`
	// Values are the values that its resources carry; 0 means that the object is missing.
	// Present are objects that are there, with an unknown value.
	Values  map[Key]int64 `json:"values,omitempty"`
	Present []Key         `json:"present,omitempty"`
	// Whole means that objects of Scope that are not in Present are missing.
	Whole bool   `json:"whole,omitempty"`
	Scope string `json:"scope,omitempty"`
}

// Sample is what a replica reports of itself.
type Sample struct {
	Replica    string        `json:"replica"` // with its incarnation
	Start      time.Duration `json:"start"`
	End        time.Duration `json:"end"`
	Revision   int64         `json:"revision"`
	Staleness  float64       `json:"staleness"` // seconds
	Goroutines int           `json:"goroutines"`
	Files      int           `json:"files"`
	Resident   int64         `json:"resident"` // bytes
	Epochs     int           `json:"epochs"`
}

// Listed is a list of the whole store by a replica, according to its log. Its cache went from
// revision After to Revision; After is 0 for the first list.
type Listed struct {
	Replica  string `json:"replica"` // with its incarnation
	After    int64  `json:"after"`
	Revision int64  `json:"revision"`
}

// Harm is one fault that was done.
type Harm struct {
	Name  string        `json:"name"`
	Start time.Duration `json:"start"`
	End   time.Duration `json:"end"`
}

// Newcomer is a proxy that connected for the first time.
type Newcomer struct {
	Replica string        `json:"replica"`
	Start   time.Duration `json:"start"`
	Took    time.Duration `json:"took"`
	// Error is why it did not get its configuration.
	Error string `json:"error,omitempty"`
}

// Settling is how a replica came to rest after all faults.
type Settling struct {
	Replica string        `json:"replica"`
	Took    time.Duration `json:"took"`
	Error   string        `json:"error,omitempty"` // why it did not settle
	// Objects is what it shows at Revision. Resources is a digest of all that it sends to one
	// and the same proxy.
	Revision  int64           `json:"revision"`
	Objects   map[Key]Version `json:"objects"`
	Resources string          `json:"resources"`
	// Before and After are its use of the machine before the first fault and after the last.
	Before, After Sample
}

// Ending is how a process ended that was told to.
type Ending struct {
	Process string        `json:"process"`
	Took    time.Duration `json:"took"`
	Error   string        `json:"error,omitempty"`
}

// Promises are the bounds of a run. They depend on the machine.
type Promises struct {
	// Converge is how long a replica may take to be in sync after the last fault.
	Converge time.Duration `json:"converge"`
	// Fail is how long a write may take, and Wait a read of a revision.
	Fail time.Duration `json:"fail"`
	Wait time.Duration `json:"wait"`
	// Newcomer is how long a new proxy may wait for its configuration.
	Newcomer time.Duration `json:"newcomer"`
	// End is how long a process may take to end.
	End time.Duration `json:"end"`
	// Linear is how long the checker of one key may run.
	Linear time.Duration `json:"linear"`
}

// History is everything that was seen in a run.
type History struct {
	Seed      uint64
	Topology  string
	Promises  Promises
	Truth     Truth
	Said      Said // revisions of statuses; not part of the truth
	Calls     []Call
	Lists     []List
	Watches   []Watch
	Pushes    []Push
	Samples   []Sample
	Listed    []Listed
	Harm      []Harm
	Newcomers []Newcomer
	Settled   []Settling
	Endings   []Ending
	// Final is the content of the store at the end.
	Final map[Key]Version
}

// Save writes the history into a directory: a file of JSON lines for each kind of record.
func (h *History) Save(dir string) error {
	return errors.Join(
		save(dir, "run", []any{map[string]any{"seed": h.Seed, "topology": h.Topology, "promises": h.Promises, "final": h.Final}}),
		save(dir, "truth", h.Truth.Events), save(dir, "said", []Said{h.Said}), save(dir, "calls", h.Calls), save(dir, "lists", h.Lists),
		save(dir, "watches", h.Watches), save(dir, "pushes", h.Pushes), save(dir, "samples", h.Samples),
		save(dir, "listed", h.Listed), save(dir, "harm", h.Harm), save(dir, "newcomers", h.Newcomers),
		save(dir, "settled", h.Settled), save(dir, "endings", h.Endings),
	)
}

func save[T any](dir, name string, items []T) (err error) {
	path := filepath.Join(dir, name+".jsonl")
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("save the history: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	out := bufio.NewWriter(file)
	lines := json.NewEncoder(out)
	for _, item := range items {
		if err := lines.Encode(item); err != nil {
			return fmt.Errorf("save %s: %w", path, err)
		}
	}
	return out.Flush()
}
