package claim

import (
	"maps"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
)

// RightsAnnotation is the annotation of an object whose writer had the right to hosts of other
// namespaces: "namespace/host", separated by commas. The config API writes it anew with every
// write of the object, whatever the writer says, so what it names was checked.
const RightsAnnotation = "portolan.io/host-rights"

// Entitled says whether the writer of an object had the right to a host, or a pattern of hosts,
// of a namespace. Only the store's own objects have passed the config API.
func Entitled(c *config.Config, h host.Name, owner string) bool {
	value := c.Annotations[RightsAnnotation]
	return value != "" && c.Source == "" && slices.Contains(strings.Split(value, ","), right(h, owner))
}

// WithRights returns an object with the given crossings in its annotation, and no others.
func WithRights(c *config.Config, crossings []Crossing) *config.Config {
	var rights []string
	for _, x := range crossings {
		rights = append(rights, right(x.Host, x.Owner.Namespace))
	}
	slices.Sort(rights)
	value := strings.Join(slices.Compact(rights), ",")
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

func right(h host.Name, owner string) string { return owner + "/" + string(h) }
