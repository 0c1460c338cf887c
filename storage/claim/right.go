package claim

import (
	"maps"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
)

// RightsAnnotation is the annotation of an object whose writer had the right to hosts of other
// namespaces: its Rights, separated by commas. The config API writes it anew with every write
// of the object, whatever the writer says, so what it names was checked.
const RightsAnnotation = "portolan.io/host-rights"

// A Right is the right to a host, or to a pattern of hosts, of a namespace.
type Right struct {
	Namespace string
	Host      host.Name
}

// String is "namespace/host".
func (r Right) String() string { return r.Namespace + "/" + string(r.Host) }

// Entitled says whether the writer of an object had the right to the host of an owner, or to
// the pattern by which the object claims the host. Only the store's own objects have passed the
// config API.
func Entitled(c *config.Config, claimed host.Name, o Owner) bool {
	value := c.Annotations[RightsAnnotation]
	if value == "" || c.Source != "" {
		return false
	}
	rights := strings.Split(value, ",")
	return slices.Contains(rights, Right{o.Namespace, o.Host}.String()) || slices.Contains(rights, Right{o.Namespace, claimed}.String())
}

// WithRights returns an object with the given rights in its annotation, and no others.
func WithRights(c *config.Config, rights []Right) *config.Config {
	var texts []string
	for _, r := range rights {
		texts = append(texts, r.String())
	}
	slices.Sort(texts)
	value := strings.Join(slices.Compact(texts), ",")
	if c.Annotations[RightsAnnotation] == value {
		return c
	}
	out := *c
	out.Annotations = maps.Clone(c.Annotations)
	if delete(out.Annotations, RightsAnnotation); value != "" {
		if out.Annotations == nil {
			out.Annotations = map[string]string{}
		}
		out.Annotations[RightsAnnotation] = value
	}
	if len(out.Annotations) == 0 {
		out.Annotations = nil
	}
	return &out
}
