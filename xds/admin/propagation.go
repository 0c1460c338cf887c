package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	extensions "istio.io/api/extensions/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/storage/wasm"
	"github.com/portolan-mesh/portolan/xds/progress"
)

// PropagationPath is the path of a Propagation. It asks about all changes up to a revision (the
// parameter revision), about one change (change, its revision), or about the last change of an
// object (group, kind, namespace and name).
const PropagationPath = "/apis/portolan.io/v1/propagation"

// Propagation says how far a change has come among the proxies of all servers. Its JSON form is
// an API.
type Propagation struct {
	metav1.TypeMeta       `json:",inline"`
	progress.Distribution `json:",inline"`
	// Faults lists the parts of an object that are not served as its source has them. Proxies
	// keep the source's former content of these. It is for objects of other sources than the
	// store.
	Faults []string `json:"faults,omitempty"`
}

// Objects looks up the revision of an object, and the revision of the store.
type Objects interface {
	Snapshot() *cache.Snapshot
	StoreRevision(ctx context.Context) (int64, error)
}

// ServePropagation serves Propagations from a view. faults returns the Faults of an object of
// another source than the store.
func ServePropagation(view *progress.View, objects Objects, faults func(*config.Config) []string) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		revision, all, object, err := askedFor(r, objects)
		if err != nil {
			return nil, err
		}
		out := Propagation{TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "Propagation"}}
		if object != nil {
			out.Distribution, out.Faults = view.OfObject(object), faults(object)
		} else {
			out.Distribution = view.Of(revision, all)
		}
		if all {
			return out, nil
		}
		var plugins []config.Key
		if object != nil {
			plugins = append(plugins, object.Key())
		} else if plugins = pluginsAt(objects.Snapshot(), revision); len(plugins) > 0 {
			out.Distribution = view.OfPlugins(revision, plugins)
		}
		// Who may ask about a change learns nothing of other objects.
		out.MissingModules = slices.DeleteFunc(out.MissingModules, func(m status.MissingModule) bool {
			return !slices.ContainsFunc(plugins, func(key config.Key) bool { return key.Path() == m.Plugin })
		})
		return out, nil
	}
}

// pluginsAt returns the WasmPlugins that were last written at a revision and whose modules the servers
// fetch. Read the snapshot after the progress of the revision: then it has them if the servers do.
func pluginsAt(snapshot *cache.Snapshot, revision int64) (out []config.Key) {
	for c := range snapshot.List(schema.WasmPlugin, "") {
		at, known := c.Revision()
		source, _, _ := wasm.SourceOf(c.Spec.(*extensions.WasmPlugin).GetUrl(), "")
		if known && at == revision && c.Source == "" && source.File == "" {
			out = append(out, c.Key())
		}
	}
	return out
}

// askedFor returns the revision that a request is about, and whether it asks about all changes
// up to it. For an object of another source than the store it returns the object.
func askedFor(r *http.Request, objects Objects) (revision int64, all bool, other *config.Config, err error) {
	query := r.URL.Query()
	text := query.Get("change")
	if all = query.Has("revision"); all {
		text = query.Get("revision")
	}
	if query.Has("name") {
		if text != "" {
			return 0, false, nil, refusal.BadRequest("name a revision, a change or an object, not several of them")
		}
		object := objects.Snapshot().Get(config.Key{
			Kind:      config.GroupVersionKind{Group: query.Get("group"), Kind: query.Get("kind")},
			Namespace: query.Get("namespace"), Name: query.Get("name"),
		})
		if object == nil {
			return 0, false, nil, fmt.Errorf("%s %s/%s: %w", query.Get("kind"), query.Get("namespace"), query.Get("name"), storage.ErrNotFound)
		}
		if object.Source != "" {
			return 0, false, object, nil
		}
		text = object.ResourceVersion
	}
	if revision, err = strconv.ParseInt(text, 10, 64); err != nil || revision <= 0 {
		return 0, false, nil, refusal.BadRequest(fmt.Sprintf("%q is no revision: name one by revision or change, or an object by group, kind, namespace and name", text))
	}
	if snapshot := objects.Snapshot(); snapshot == nil || snapshot.Revision() < revision {
		// If the store does not answer, the revision is not checked.
		if now, err := objects.StoreRevision(r.Context()); err == nil && now < revision {
			return 0, false, nil, refusal.BadRequest(fmt.Sprintf("revision %d is in the future: the store is at %d", revision, now))
		}
	}
	return revision, all, nil, nil
}
