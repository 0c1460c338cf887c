package batch

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
)

// The names, the path and the limits of the endpoint.
const (
	Group      = "portolan.io"
	Version    = "v1"
	APIVersion = Group + "/" + Version
	Kind       = "Batch"
	ResultKind = "BatchResult"
	Path       = "/apis/" + APIVersion + "/batches"
)

// Verb names the action of an operation.
type Verb string

// The verbs. Create fails if the object exists, Update and Delete if it does not. Apply
// creates or updates: the object becomes what the request has. Once somebody has applied the
// object server-side, Apply is an apply like theirs, and leaves the fields of other managers.
// Restore puts the whole object in the place of the stored one, and gives an object that it
// creates the creationTimestamp in the request, unless that is in the future. Of the status of a
// WorkloadEntry it takes the condition Healthy over, unless the store has a report of its health.
const (
	Create  Verb = "create"
	Update  Verb = "update"
	Apply   Verb = "apply"
	Restore Verb = "restore"
	Delete  Verb = "delete"
)

// Absent is the resourceVersion of an object that must not exist, for Apply and
// Restore.
const Absent = storage.Absent

// MaxMessage is the most bytes of a message.
const MaxMessage = 1024

// Batch is the request. Message is the user's comment on the change, for its record in
// the history: one line of text, or none.
type Batch struct {
	metav1.TypeMeta `json:",inline"`
	Message         string `json:"message,omitempty"`
	// Strict refuses the batch because of its warnings: of those of severity error if it is
	// "error", and also of those of severity warning if it is "warning". An info never
	// refuses. Empty refuses none.
	Strict string `json:"strict,omitempty"`
	// Force takes fields from those who have applied other values server-side. Without it they
	// are conflicts. It concerns Apply alone.
	Force bool `json:"force,omitempty"`
	// ServerSide makes each Apply one of server-side: of the object it sets the fields in the
	// request, and takes away those that its manager has applied before and applies no more. Fields
	// of other managers stay. Without it an Apply is so for objects that somebody has applied
	// server-side.
	ServerSide bool `json:"serverSide,omitempty"`
	// FieldManager is the name of who applies. It is the parameter fieldManager of the URL; empty
	// is the program.
	FieldManager string      `json:"-"`
	Operations   []Operation `json:"operations"`
}

// New returns a batch of operations.
func New(operations ...Operation) Batch {
	return Batch{TypeMeta: metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}, Operations: operations}
}

// JSON returns the batch as JSON. It copies the objects of operations that have nothing but a verb
// beside, and does not read them: they must be valid JSON.
func (b Batch) JSON() (json.RawMessage, error) {
	size := 0
	for _, o := range b.Operations {
		size += len(o.Object) + len(`{"verb":"restore","object":},`)
	}
	operations := b.Operations
	b.Operations = []Operation{}
	frame, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	text := make([]byte, 0, len(frame)+size)
	text = append(text, frame[:len(frame)-len(`]}`)]...)
	for i, o := range operations {
		if i > 0 {
			text = append(text, ',')
		}
		if (o.APIVersion+o.Kind+o.Namespace+o.Name+o.ResourceVersion) == "" && len(o.Object) > 0 {
			text = append(text, `{"verb":`...)
			text = strconv.AppendQuote(text, string(o.Verb))
			text = append(append(append(text, `,"object":`...), o.Object...), '}')
			continue
		}
		one, err := json.Marshal(o)
		if err != nil {
			return nil, err
		}
		text = append(text, one...)
	}
	return append(text, `]}`...), nil
}

// Operation is one change. Object is the whole object; a resourceVersion in it is the
// version that the stored object must have, or Absent. Delete may name its object by the
// other fields instead.
type Operation struct {
	Verb   Verb            `json:"verb"`
	Object json.RawMessage `json:"object,omitempty"`

	APIVersion      string `json:"apiVersion,omitempty"`
	Kind            string `json:"kind,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// Write returns the operation that creates, updates, applies or restores an
// object.
func Write(verb Verb, object *config.Config) (Operation, error) {
	text, err := config.ToJSON(object, "")
	if err != nil {
		return Operation{}, err
	}
	return Operation{Verb: verb, Object: text}, nil
}

// Remove returns the operation that deletes an object. If resourceVersion is empty, any
// version is deleted.
func Remove(key config.Key, resourceVersion string) Operation {
	return Operation{
		Verb: Delete, APIVersion: key.Kind.APIVersion(), Kind: key.Kind.Kind,
		Namespace: key.Namespace, Name: key.Name, ResourceVersion: resourceVersion,
	}
}

// Result is the answer to a batch that was done. Revision is the revision that it made.
type Result struct {
	metav1.TypeMeta `json:",inline"`
	Revision        string    `json:"revision"`
	Results         []Outcome `json:"results"`
	Warnings        []string  `json:"warnings,omitempty"`
	// Infos are the indexes of those Warnings that are only of severity info.
	Infos []int `json:"infos,omitempty"`
	// Effect is what proxies would get; only set in a dry run with a preview.
	Effect *effect.Effect `json:"effect,omitempty"`
}

// Outcome is the result for one object: created, configured, unchanged or deleted.
// ResourceVersion is the object's version afterwards, and for a deleted object the
// revision of its deletion.
type Outcome struct {
	Kind            string `json:"kind"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	Outcome         string `json:"outcome"`
	ResourceVersion string `json:"resourceVersion"`
	// Dangling has the warnings of a deletion about objects that refer to the deleted
	// one.
	Dangling []string `json:"dangling,omitempty"`
	// Note has details in words: which object of another source a new object is used instead of,
	// or takes the place of a deleted one, and what a restored object has of its status.
	Note string `json:"note,omitempty"`
	// Before and After are the present and the future object, without fields that only
	// the server sets. They are set in a dry run with a preview, if they differ.
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`
}

// Field returns the path of an operation, or of something in it, for the causes of a
// Status: "operations[2].object.spec.hosts".
func Field(operation int, rest string) string {
	field := fmt.Sprintf("operations[%d]", operation)
	if rest != "" {
		field += "." + rest
	}
	return field
}

// Index splits the field of a cause: the index of the operation, and the field of the
// operation's object, empty if the operation itself is at fault. It returns false for a
// field of no operation.
func Index(field string) (operation int, objectField string, ok bool) {
	rest, ok := strings.CutPrefix(field, "operations[")
	if !ok {
		return 0, "", false
	}
	number, rest, ok := strings.Cut(rest, "]")
	if !ok {
		return 0, "", false
	}
	operation, err := strconv.Atoi(number)
	if err != nil || operation < 0 {
		return 0, "", false
	}
	objectField, ok = strings.CutPrefix(rest, ".object.")
	if !ok {
		objectField = ""
	}
	return operation, objectField, true
}
