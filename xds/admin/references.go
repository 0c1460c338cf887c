package admin

import (
	"cmp"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh"
)

// ReferencesPath is the path of the References of an object (the parameters group,
// kind, namespace and name).
const ReferencesPath = "/apis/portolan.io/v1/references"

// References lists the objects that an object names, and those that name it, among
// VirtualServices, DestinationRules, Gateways, ServiceEntries, WorkloadEntries and the services
// of all registries. Only names count; exportTo is ignored. The JSON form is an API.
type References struct {
	metav1.TypeMeta `json:",inline"`
	// Revision is the store's revision that they are derived from.
	Revision int64 `json:"revision"`
	// To lists the objects that the object names, in the order of its fields. From lists
	// the objects that name it, by kind, namespace and name.
	To   []Reference `json:"to"`
	From []Reference `json:"from"`
}

// Reference is an object that is named, or that names the other, and the fields that do so.
type Reference struct {
	// Object is "kind/namespace/name", "service HOST", or the missing name.
	Object string   `json:"object"`
	Fields []string `json:"fields"`
	// Missing means that nothing has that name.
	Missing bool `json:"missing,omitempty"`
}

// ServeReferences serves the references among the objects that a server's newest
// push was made from. The work for one answer grows with their number.
func ServeReferences(server Source) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		query := r.URL.Query()
		if query.Get("kind") == "" || query.Get("name") == "" {
			return nil, refusal.BadRequest("say of which object: " + ReferencesPath + "?group=GROUP&kind=KIND&namespace=NAMESPACE&name=NAME")
		}
		push := server.Context()
		if push == nil {
			return nil, refusal.Unavailable("the server has not read its configuration yet: try again in a moment")
		}
		object := push.Inputs().Configs.Get(config.Key{
			Kind:      config.GroupVersionKind{Group: query.Get("group"), Kind: query.Get("kind")},
			Namespace: query.Get("namespace"), Name: query.Get("name"),
		})
		if object == nil {
			return nil, fmt.Errorf("%s %s/%s: %w", query.Get("kind"), query.Get("namespace"), query.Get("name"), storage.ErrNotFound)
		}
		return References{
			TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "References"},
			Revision: push.Revision(), To: referencesTo(push, object), From: referencesFrom(push, object),
		}, nil
	}
}

// referencesTo returns the objects that an object names.
func referencesTo(p *mesh.PushContext, object *config.Config) []Reference {
	out := []Reference{}
	for _, l := range linksOf(object) {
		found := false
		for name := range l.targets(p, object) {
			out, found = refer(out, name, l.field, false), true
		}
		if !found && !l.free {
			out = refer(out, l.String(), l.field, true)
		}
	}
	return out
}

// referencesFrom returns the objects that name an object.
func referencesFrom(p *mesh.PushContext, object *config.Config) []Reference {
	out := []Reference{}
	for _, kind := range []config.GroupVersionKind{schema.DestinationRule, schema.ServiceEntry, schema.VirtualService} {
		for other := range p.Inputs().Configs.List(kind, "") {
			for _, l := range linksOf(other) {
				if l.leadsTo(object, other) {
					out = refer(out, other.Key().String(), l.field, false)
				}
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Reference) int { return cmp.Compare(a.Object, b.Object) })
	return out
}

// refer adds a field to the reference to an object. It adds the reference if there is none yet.
func refer(list []Reference, object, field string, missing bool) []Reference {
	i := slices.IndexFunc(list, func(r Reference) bool { return r.Object == object && r.Missing == missing })
	if i < 0 {
		return append(list, Reference{Object: object, Fields: []string{field}, Missing: missing})
	}
	list[i].Fields = append(list[i].Fields, field)
	return list
}

// targets returns the objects that a link of an object refers to, in the form of
// Reference.Object.
func (l link) targets(p *mesh.PushContext, from *config.Config) iter.Seq[string] {
	return func(yield func(string) bool) {
		if l.host != "" && l.subset == "" {
			for row := range p.HostRows() {
				if l.names(row.Hostname) && !yield("service "+string(row.Hostname)) {
					return
				}
			}
			return
		}
		for object := range p.Inputs().Configs.List(l.kind, "") {
			if l.leadsTo(object, from) && !yield(object.Key().String()) {
				return
			}
		}
	}
}

// String returns what a link names.
func (l link) String() string {
	switch {
	case l.subset != "":
		return fmt.Sprintf("subset %s of %s", l.subset, l.host)
	case l.host != "":
		return "service " + string(l.host)
	case l.selector != nil:
		return "workloads with " + l.selector.String()
	}
	return strings.ToLower(l.kind.Kind) + "/" + l.namespace + "/" + l.name
}
