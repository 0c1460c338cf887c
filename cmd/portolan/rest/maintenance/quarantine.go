package maintenance

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// QuarantinePath answers a GET with a QuarantineList. A DELETE with the parameters key,
// as EscapeKey makes it, and revision removes one entry, and is answered with a
// Discarded.
const QuarantinePath = Path + "/quarantine"

// A QuarantineList lists the keys below the prefix of configuration that cannot be
// served: keys of no known kind, and values that cannot be decoded.
type QuarantineList struct {
	metav1.TypeMeta `json:",inline"`
	// Items are in the order of their keys.
	Items []Quarantined `json:"items"`
}

// Quarantined is one key that cannot be served.
type Quarantined struct {
	// Key is the key in etcd, as EscapeKey makes it.
	Key string `json:"key"`
	// Revision is the revision of its last change, and Bytes the size of its value.
	Revision int64  `json:"revision"`
	Bytes    int    `json:"bytes"`
	Reason   string `json:"reason"`
	// Since is when the server first found the key so.
	Since time.Time `json:"since"`
	// Serving says that the last good object of the key is still served.
	Serving bool `json:"serving"`
}

// A Discarded is a key that was removed.
type Discarded struct {
	metav1.TypeMeta `json:",inline"`
	Key             string `json:"key"`
	// Revision is the revision at which it was removed.
	Revision string `json:"revision"`
}

// Quarantine lists what a server cannot serve, and removes it.
type Quarantine interface {
	// Quarantined returns the keys in quarantine, in order.
	Quarantined() []Quarantined
	// Discard removes the key, which is not escaped, if it has the revision, and returns
	// the revision of the removal. It returns errors of package storage.
	Discard(ctx context.Context, key string, revision int64) (string, error)
}

func (o Options) listQuarantine(w http.ResponseWriter, _ *http.Request) error {
	if o.Quarantine == nil {
		return unsupported("keep a quarantine of", "everything in it can be served")
	}
	items := o.Quarantine.Quarantined()
	if items == nil {
		items = []Quarantined{}
	}
	rest.WriteJSON(w, http.StatusOK, QuarantineList{TypeMeta: typeMeta("StoreQuarantineList"), Items: items})
	return nil
}

func (o Options) discard(w http.ResponseWriter, r *http.Request) error {
	if o.Quarantine == nil {
		return unsupported("keep a quarantine of", "delete objects by their names")
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return refusal.BadRequest(fmt.Sprintf("the query of the URL cannot be read: %v", err))
	}
	key, err := UnescapeKey(query.Get("key"))
	if err != nil || key == "" {
		return refusal.BadRequest(fmt.Sprintf("key: %q is none: give the key of an item of %s", query.Get("key"), QuarantinePath))
	}
	revision, err := strconv.ParseInt(query.Get("revision"), 10, 64)
	if err != nil || revision < 1 {
		return refusal.BadRequest(fmt.Sprintf("revision: %q is none: give that of the item, so that nothing goes but what you saw", query.Get("revision")))
	}
	deleted, err := o.Quarantine.Discard(r.Context(), key, revision)
	if err != nil {
		return err
	}
	rest.WriteJSON(w, http.StatusOK, Discarded{TypeMeta: typeMeta("StoreDiscarded"), Key: EscapeKey(key), Revision: deleted})
	return nil
}

// EscapeKey writes an etcd key, which may hold any bytes, as one word of text: invisible
// characters and % become %XX.
func EscapeKey(key string) string {
	var out strings.Builder
	for i, r := range key {
		size := utf8.RuneLen(r)
		invalid := r == utf8.RuneError && !strings.HasPrefix(key[i:], string(utf8.RuneError))
		if invalid {
			size = 1
		}
		if !invalid && r != '%' && unicode.IsGraphic(r) && !unicode.IsSpace(r) {
			out.WriteRune(r)
			continue
		}
		for _, b := range []byte(key[i : i+size]) {
			fmt.Fprintf(&out, "%%%02X", b)
		}
	}
	return out.String()
}

// UnescapeKey is the inverse of EscapeKey.
func UnescapeKey(text string) (string, error) { return url.PathUnescape(text) }
