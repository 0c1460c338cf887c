package rest

import (
	"fmt"
	"net/url"

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

// parseSelector reads labelSelector and fieldSelector.
func parseSelector(query url.Values) (selector, error) {
	l, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return selector{}, refusal.BadRequest(fmt.Sprintf("labelSelector: %v", err))
	}
	f, err := fields.ParseSelector(query.Get("fieldSelector"))
	if err != nil {
		return selector{}, refusal.BadRequest(fmt.Sprintf("fieldSelector: %v", err))
	}
	for _, r := range f.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" {
			return selector{}, refusal.BadRequest(fmt.Sprintf("fieldSelector: %q is not supported: select by metadata.name or metadata.namespace", r.Field))
		}
	}
	return selector{labels: l, fields: f}, nil
}

// matches returns false for nil.
func (s selector) matches(c *config.Config) bool {
	if c == nil || !s.labels.Matches(labels.Set(c.Labels)) {
		return false
	}
	return s.fields.Empty() || s.fields.Matches(fields.Set{"metadata.name": c.Name, "metadata.namespace": c.Namespace})
}
