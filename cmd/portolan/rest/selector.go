package rest

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/secret"
)

// selector says which objects a list or a watch selects.
type selector struct {
	labels labels.Selector
	fields fields.Selector
}

// The fields of all kinds by which objects can be selected, and that of secrets.
const nameField, namespaceField, typeField = "metadata.name", "metadata.namespace", "type"

// selector reads labelSelector and fieldSelector of the call.
func (c *call) selector() (selector, error) {
	if isKind(c.schema.GroupVersionKind, schema.Secret) {
		return parseSelector(c.query, nameField, namespaceField, typeField)
	}
	return parseSelector(c.query, nameField, namespaceField)
}

// parseSelector reads labelSelector and fieldSelector, which may name some fields.
func parseSelector(query url.Values, known ...string) (selector, error) {
	l, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return selector{}, refusal.BadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	f, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return selector{}, refusal.BadRequest(fmt.Sprintf("fieldSelector: %v", err))
	}
	for _, r := range f.Requirements() {
		if !slices.Contains(known, r.Field) {
			return selector{}, refusal.BadRequest(fmt.Sprintf("fieldSelector: %q is not supported: select by %s", r.Field, strings.Join(known, " or ")))
		}
	}
	return selector{labels: l, fields: f}, nil
}

// matches returns false for nil.
func (s selector) matches(c *config.Config) bool {
	if c == nil || !s.labels.Matches(labels.Set(c.Labels)) {
		return false
	}
	if s.fields.Empty() {
		return true
	}
	of := fields.Set{nameField: c.Name, namespaceField: c.Namespace}
	if spec, ok := c.Spec.(*secret.Spec); ok {
		of[typeField] = spec.Type
	}
	return s.fields.Matches(of)
}

// empty says whether all objects match.
func (s selector) empty() bool { return s.labels.Empty() && s.fields.Empty() }
