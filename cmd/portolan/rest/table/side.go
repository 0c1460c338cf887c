package table

import (
	"strconv"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/side"
)

// sideColumns returns the columns of Kubernetes' own kinds, which are those of a cluster.
func sideColumns(kind config.GroupVersionKind) []Column {
	switch kind {
	case schema.Namespace:
		return []Column{show("Status", func(*corev1.NamespaceSpec, bool) string { return string(corev1.NamespaceActive) })}
	case schema.ConfigMap:
		return []Column{show("Data", func(s *side.ConfigMap, _ bool) string { return strconv.Itoa(len(s.Data) + len(s.BinaryData)) })}
	case schema.Lease:
		return []Column{show("Holder", func(s *coordinationv1.LeaseSpec, _ bool) string {
			if s.HolderIdentity == nil {
				return ""
			}
			return *s.HolderIdentity
		})}
	case schema.Event:
		type spec = *side.Event
		return []Column{
			show("Type", func(s spec, _ bool) string { return s.Type }),
			show("Reason", func(s spec, _ bool) string { return s.Reason }),
			show("Object", func(s spec, _ bool) string {
				return strings.ToLower(s.InvolvedObject.Kind) + "/" + s.InvolvedObject.Name
			}),
			show("Message", func(s spec, _ bool) string { return s.Message }),
		}
	}
	return nil
}
