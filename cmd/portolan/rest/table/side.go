package table

import (
	"cmp"
	"strconv"
	"time"

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
			{Name: "Last Seen", since: lastSeen},
			show("Type", func(e spec, _ bool) string { return e.Type }),
			show("Reason", func(e spec, _ bool) string { return e.Reason }),
			show("Object", func(e spec, _ bool) string {
				of := e.InvolvedObject
				return config.Key{Kind: config.GroupVersionKind{Kind: of.Kind}, Namespace: of.Namespace, Name: of.Name}.String()
			}),
			show("Message", func(e spec, _ bool) string { return e.Message }),
			detail("Count", func(e spec) string {
				count := e.Count
				if e.Series != nil {
					count = max(count, e.Series.Count)
				}
				return strconv.Itoa(int(max(count, 1)))
			}),
			detail("From", func(e spec) string { return cmp.Or(e.Source.Component, e.ReportingComponent) }),
		}
	}
	return nil
}

// lastSeen returns when an event last happened, as far as that is known.
func lastSeen(object *config.Config) time.Time {
	if e, ok := object.Spec.(*side.Event); ok && !e.Last().IsZero() {
		return e.Last()
	}
	return created(object)
}
