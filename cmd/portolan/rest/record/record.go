package record

import (
	"encoding/json"
	"net/url"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
)

// The path of the records.
const (
	Resource = "records"
	Kind     = "Record"
	listKind = "RecordList"
	Path     = "/apis/" + batch.APIVersion + "/" + Resource
)

// MaxLimit is the most records of an answer, DefaultLimit how many there are without a
// limit.
const (
	MaxLimit     = 1000
	DefaultLimit = 100
)

// Query selects records; each field is a parameter of the URL. An empty field selects
// all.
type Query struct {
	// Group and Kind name a kind. Without a group the kind is searched in the core group
	// first, then in all groups, and must be unique. Name needs a kind, and the
	// namespace if the kind has namespaces.
	Group, Kind, Namespace, Name string
	// After and Until bound the revision: above After, up to and including Until.
	After, Until int64
	// Limit is from 1 to MaxLimit; 0 is DefaultLimit.
	Limit int
	// Bare omits the objects before and after (objects=false).
	Bare bool
}

// Values returns the parameters of the URL.
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

// List is the answer: records, newest first. If there are more, metadata.continue is the
// Until that reads the next ones.
type List struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        metav1.ListMeta `json:"metadata"`
	Items           []Record        `json:"items"`
}

// NewList returns a list of records.
func NewList(items []Record) List {
	return List{TypeMeta: metav1.TypeMeta{APIVersion: batch.APIVersion, Kind: listKind}, Items: items}
}

// Record is one change of the store, made by one batch or one write.
type Record struct {
	// Revision is the revision of the change, and the resourceVersion of the objects
	// that it wrote.
	Revision string    `json:"revision"`
	Time     time.Time `json:"time"`
	// User is the authenticated user, Address the address of the client, and Tool the
	// name that the client gives itself.
	User    string `json:"user,omitempty"`
	Address string `json:"address,omitempty"`
	Tool    string `json:"tool,omitempty"`
	// Message is the user's comment on the change.
	Message string   `json:"message,omitempty"`
	Changes []Change `json:"changes"`
}

// Change is the change of one object: created, configured or deleted. Before and After
// are the object before and after it, in JSON; a version that is no longer known has
// neither a spec nor a uid.
type Change struct {
	Group     string          `json:"group"`
	Kind      string          `json:"kind"`
	Namespace string          `json:"namespace,omitempty"`
	Name      string          `json:"name"`
	Outcome   string          `json:"outcome"`
	Before    json.RawMessage `json:"before,omitempty"`
	After     json.RawMessage `json:"after,omitempty"`
}
