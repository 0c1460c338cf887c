package maintenance_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage"
)

func TestEscapeKeyIsOneWordAndComesBack(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]string{
		"/portolan/v1/mesh/config/g/K/ns/näme": "/portolan/v1/mesh/config/g/K/ns/näme",
		"a b\x00%\xff/\n":                      "a%20b%00%25%FF/%0A",
		"\uFFFD\u00A0":                         "\uFFFD%C2%A0",
		"":                                     "",
	} {
		escaped := maintenance.EscapeKey(key)
		if escaped != want {
			t.Errorf("%q is %q, want %q", key, escaped, want)
		}
		if back, err := maintenance.UnescapeKey(escaped); err != nil || back != key {
			t.Errorf("%q comes back as %q, %v", key, back, err)
		}
	}
}

// ward is a quarantine with fixed items that records what it has to discard.
type ward struct {
	items     []maintenance.Quarantined
	err       error
	discarded string
}

func (w *ward) Quarantined() []maintenance.Quarantined { return w.items }

func (w *ward) Discard(_ context.Context, key string, revision int64) (string, error) {
	w.discarded = fmt.Sprintf("%q at %d", key, revision)
	return "43", w.err
}

func TestQuarantine(t *testing.T) {
	t.Parallel()
	w := &ward{}
	server, c := start(t, maintenance.Options{Quarantine: w}, nil)
	if a := server.Do(t, http.MethodGet, maintenance.QuarantinePath, ""); a.Code != 200 || !strings.Contains(a.Body, `"items":[]`) {
		t.Errorf("an empty one is %+v", a)
	}
	key := "/portolan/v1/mesh/config/a\x00b"
	w.items = []maintenance.Quarantined{
		{Key: maintenance.EscapeKey(key), Revision: 42, Bytes: 4, Reason: "why", Since: time.Unix(7, 0).UTC(), Serving: true},
	}
	list, err := c.Quarantine(t.Context())
	if err != nil || list.Kind != "StoreQuarantineList" || !cmp.Equal(list.Items, w.items) {
		t.Errorf("the list is %+v, %v", list, err)
	}
	done, err := c.Discard(t.Context(), list.Items[0].Key, 42)
	if err != nil || done.Revision != "43" || done.Key != list.Items[0].Key {
		t.Errorf("deleted: %+v, %v", done, err)
	}
	if want := fmt.Sprintf("%q at 42", key); w.discarded != want {
		t.Errorf("discarded %s, want %s", w.discarded, want)
	}
	w.err = &storage.ConflictError{Expected: "42", Actual: "44"}
	if _, err := c.Discard(t.Context(), "x", 42); !apierrors.IsConflict(err) || !strings.Contains(err.Error(), "44") {
		t.Errorf("a conflict is %v", err)
	}
}

func TestQuarantineRefusesWhatIsNotExact(t *testing.T) {
	t.Parallel()
	w := &ward{}
	server, _ := start(t, maintenance.Options{Quarantine: w}, nil)
	for query, says := range map[string]string{
		"":                     "key",
		"revision=4":           "key",
		"key=%25zz&revision=4": "key",
		"key=a":                "revision",
		"key=a&revision=0":     "revision",
		"key=a&revision=x":     "revision",
	} {
		a := server.Local().Do(t, http.MethodDelete, maintenance.QuarantinePath+"?"+query, "")
		if a.Code != 400 || !strings.Contains(a.Body, says+":") {
			t.Errorf("%s: %+v, want 400 about %s", query, a, says)
		}
	}
	if w.discarded != "" {
		t.Errorf("discarded %s", w.discarded)
	}
	if a := server.Do(t, http.MethodPut, maintenance.QuarantinePath+"?"+url.Values{"key": {"a"}}.Encode(), ""); a.Code != 405 || a.Header.Get("Allow") != "DELETE, GET" {
		t.Errorf("PUT is %+v", a)
	}
}

// formats returns a fixed format.
type formats struct {
	format maintenance.Format
	err    error
}

func (f *formats) StoreFormat(context.Context) (maintenance.Format, error) { return f.format, f.err }

func TestFormat(t *testing.T) {
	t.Parallel()
	f := &formats{format: maintenance.Format{Problems: []string{"one"}}}
	_, c := start(t, maintenance.Options{Format: f}, nil)
	got, err := c.StoreFormat(t.Context())
	if err != nil || got.Kind != "StoreFormat" || len(got.Problems) != 1 {
		t.Errorf("the format is %+v, %v", got, err)
	}
	f.err = fmt.Errorf("%w: gone", storage.ErrUnavailable)
	if _, err := c.StoreFormat(t.Context()); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("of a store that is away: %v", err)
	}
}
