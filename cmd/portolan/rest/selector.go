package rest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// selector says which objects a list or a watch selects.
type selector struct {
	labels labels.Selector
	fields fields.Selector
}

// selectable is a spec with fields by which lists and watches may select, beside name and namespace.
// Each spec of a kind has the same ones.
type selectable interface{ SelectableFields() map[string]string }

// selector reads labelSelector and fieldSelector of the call.
func (c *call) selector() (selector, error) {
	l, err := labels.Parse(c.query.Get("labelSelector"))
	if err != nil {
		return selector{}, refusal.BadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	f, err := fields.ParseSelector(c.query.Get("fieldSelector"))
	if err != nil {
		return selector{}, refusal.BadRequest(fmt.Sprintf("fieldSelector: %v", err))
	}
	known := fieldsOf(&config.Config{Spec: c.schema.Codec.New()})
	for _, r := range f.Requirements() {
		if !known.Has(r.Field) {
			return selector{}, refusal.BadRequest(fmt.Sprintf("fieldSelector: %q is not supported: select by %s", r.Field, strings.Join(slices.Sorted(maps.Keys(known)), " or ")))
		}
	}
	return selector{labels: l, fields: f}, nil
}

// matches returns false for nil.
func (s selector) matches(c *config.Config) bool {
	if c == nil || !s.labels.Matches(labels.Set(c.Labels)) {
		return false
	}
	return s.fields.Empty() || s.fields.Matches(fieldsOf(c))
}

// fieldsOf returns the fields of an object by which a list may select it.
func fieldsOf(c *config.Config) fields.Set {
	out := fields.Set{"metadata.name": c.Name, "metadata.namespace": c.Namespace}
	if spec, ok := c.Spec.(selectable); ok {
		maps.Copy(out, spec.SelectableFields())
	}
	return out
}

// empty says whether all objects match.
func (s selector) empty() bool { return s.labels.Empty() && s.fields.Empty() }
