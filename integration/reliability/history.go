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

// Verb is what a write does with an object.
type Verb string

// The verbs of a write: Create fails where the object exists, Update and Delete
// where it does not, Put makes it what it is given.
const (
	Create Verb = "create"
	Update Verb = "update"
	Put    Verb = "put"
	Delete Verb = "delete"
)

// Class is what a call came to.
type Class string

// The classes. Of a write only OK says that it was done; Unknown says that it may
// have been done or may yet be; all others say that it was not and never will be.
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

// Version is what a key holds: the revision of its last change, and its value. No
// two writes of a run write the same value to a key; 0 is no object.
type Version struct {
	Revision int64 `json:"revision"`
	Value    int64 `json:"value"`
}

// Write is one object of a call.
type Write struct {
	Key  Key  `json:"key"`
	Verb Verb `json:"verb"`
	// Given is the version that the stored object must have; 0 is any.
	Given int64 `json:"given,omitempty"`
	Value int64 `json:"value,omitempty"`
	// Unchanged says that the answer was that nothing had to be written.
	Unchanged bool `json:"unchanged,omitempty"`
}

// Call is one call of a client. Times are those of the run's monotonic clock.
type Call struct {
	Client  int           `json:"client"`
	Replica string        `json:"replica"`
	Start   time.Duration `json:"start"`
	End     time.Duration `json:"end"`

	// Writes are the objects of a write, done as one; a read has none.
	Writes []Write `json:"writes,omitempty"`
	// Same says that the call writes what is there already.
	Same bool `json:"same,omitempty"`

	// Key is what a read asks for. It has to show every write acknowledged before
	// it where Consistent, and revision Least in any case.
	Key        Key   `json:"key,omitempty"`
	Consistent bool  `json:"consistent,omitempty"`
	Least      int64 `json:"least,omitempty"`

	Class Class `json:"class"`
	// Revision is the one that a write made; of a read it is that of Found.
	Revision int64   `json:"revision,omitempty"`
	Found    Version `json:"found,omitzero"`
	Error    string  `json:"error,omitempty"`
}

// List is a list of one kind in one namespace, "Kind/namespace".
type List struct {
	Replica string        `json:"replica"` // with its incarnation: one process
	Client  int           `json:"client"`
	Start   time.Duration `json:"start"`
	End     time.Duration `json:"end"`
	Scope   string        `json:"scope"`
	Least   int64         `json:"least,omitempty"`
	// Revision is that which the list is of, and Objects are all there were.
	Revision int64           `json:"revision"`
	Objects  map[Key]Version `json:"objects"`
}

// Kinds of deliveries of a watch.
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

// Watch is one connection of a watch of the API. It began at revision From with
// what the watcher held then, which is what it had heard on an earlier connection
// or listed.
type Watch struct {
	Replica string          `json:"replica"` // with its incarnation
	Scope   string          `json:"scope"`
	From    int64           `json:"from"`
	Held    map[Key]Version `json:"held"`
	Events  []Delivery      `json:"events"`
	// Resumed says that Held comes from an earlier connection.
	Resumed bool `json:"resumed,omitempty"`
}

// Push is one response that a proxy was sent.
type Push struct {
	Replica string        `json:"replica"` // with its incarnation
	Stream  string        `json:"stream"`
	At      time.Duration `json:"at"`
	Type    string        `json:"type"`
	// Revision is that which the response is made of, by its nonce.
	Revision int64 `json:"revision"`
	// Values are the values that its resources carry; 0 says that the object is
	// not there. Present are objects that are there, with a value not told.
	Values  map[Key]int64 `json:"values,omitempty"`
	Present []Key         `json:"present,omitempty"`
	// Whole says that objects of Scope that are not Present are not there.
	Whole bool   `json:"whole,omitempty"`
	Scope string `json:"scope,omitempty"`
}

// Sample is what a replica said of itself.
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

// Listed is a list of the whole store that a replica made, as its log tells: at
// Revision, where its cache stood at After before, 0 for the first.
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
	// Error is why it was not configured.
	Error string `json:"error,omitempty"`
}

// Settling is how a replica came to rest once all harm was over.
type Settling struct {
	Replica string        `json:"replica"`
	Took    time.Duration `json:"took"`
	Error   string        `json:"error,omitempty"` // why it did not
	// Objects is what it shows at Revision, and Resources a digest of all that it
	// sends to one and the same proxy.
	Revision  int64           `json:"revision"`
	Objects   map[Key]Version `json:"objects"`
	Resources string          `json:"resources"`
	// Before and After are what it took of the machine before the first harm and
	// after the last.
	Before, After Sample
}

// Ending is how a process ended that was asked to.
type Ending struct {
	Process string        `json:"process"`
	Took    time.Duration `json:"took"`
	Error   string        `json:"error,omitempty"`
}

// Promises are the bounds of a run, in which the machine has a say.
type Promises struct {
	// Converge is how long a replica may take to be in step after the last harm.
	Converge time.Duration `json:"converge"`
	// Fail is how long a write may take, and Wait a read of a revision.
	Fail time.Duration `json:"fail"`
	Wait time.Duration `json:"wait"`
	// Newcomer is how long a new proxy may wait for its configuration.
	Newcomer time.Duration `json:"newcomer"`
	// End is how long a process may take to end.
	End time.Duration `json:"end"`
	// Linear is how long the checker of one key may think.
	Linear time.Duration `json:"linear"`
}

// History is everything that was seen in a run.
type History struct {
	Seed      uint64
	Topology  string
	Promises  Promises
	Truth     Truth
	Said      Said // beside it
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
	// Final is what the store itself holds in the end.
	Final map[Key]Version
}

// Save writes the history into a directory: a file of JSON lines for each kind of
// thing seen.
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
