package record

import (
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache/rest/batch"
)

// Where records are read.
const (
	Resource = "records"
	Kind     = "Record"
	ListKind = "RecordList"
	Path     = "/apis/" + batch.APIVersion + "/" + Resource
)

// How many records an answer has at most, and how many where limit is not set.
const (
	MaxLimit     = 1000
	DefaultLimit = 100
)

// Query is what is asked for, each field a parameter of the URL. What is empty
// narrows nothing.
type Query struct {
	// Group and Kind name a kind; the group may be left out where one alone has a
	// kind of that name. Name needs a kind, and the namespace where the kind has
	// those.
	Group, Kind, Namespace, Name string
	// After and Until bound the revision: those above After up to and with Until.
	After, Until int64
	// Limit is from 1 to MaxLimit; 0 is DefaultLimit.
	Limit int
	// Bare leaves the objects before and after out (objects=false).
	Bare bool
}

// Values are the parameters of the URL.
func (q Query) Values() url.Values {
	v := url.Values{}
	text := func(name, value string) {
		if value != "" {
			v.Set(name, value)
		}
	}
	number := func(name string, value int64) {
		if value != 0 {
			v.Set(name, strconv.FormatInt(value, 10))
		}
	}
	text("group", q.Group)
	text("kind", q.Kind)
	text("namespace", q.Namespace)
	text("name", q.Name)
	number("after", q.After)
	number("until", q.Until)
	number("limit", int64(q.Limit))
	if q.Bare {
		v.Set("objects", "false")
	}
	return v
}

// List is the answer: records, newest first. Where there are more of them,
// metadata.continue is the Until by which the next ones are read.
type List struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ListMeta `json:"metadata"`
	Items           []Record        `json:"items"`
}

// NewList returns a list of records.
func NewList(items []Record) List {
	return List{TypeMeta: metav1.TypeMeta{APIVersion: batch.APIVersion, Kind: ListKind}, Items: items}
}

// Record is one change of the store: what one batch or one write did.
type Record struct {
	// Revision is that of the store after it, and the resourceVersion of the
	// objects that it left behind.
	Revision string    `json:"revision"`
	Time     time.Time `json:"time"`
	// User is who was authenticated, Address that of the client, and Tool what
	// the client says that it is.
	User    string `json:"user,omitempty"`
	Address string `json:"address,omitempty"`
	Tool    string `json:"tool,omitempty"`
	// Message is what the user had to say about the change.
	Message string   `json:"message,omitempty"`
	Changes []Change `json:"changes"`
}

// Change is what became of one object: created, configured or deleted. Before
// and After are the object as it was and as it became, in JSON; one that is not
// known any more has no spec.
type Change struct {
	Group     string          `json:"group"`
	Kind      string          `json:"kind"`
	Namespace string          `json:"namespace,omitempty"`
	Name      string          `json:"name"`
	Outcome   string          `json:"outcome"`
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
}
