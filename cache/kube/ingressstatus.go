package kube

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/schema/ingressstatus"
)

// wantedOfIngress returns the addresses at which an Ingress is served, none for one that is not in effect,
// as another source has an object of its name too. It returns nil for an IngressClass, and before there is
// a report.
func (w *StatusWriter) wantedOfIngress(key config.Key) *wanted {
	object := w.seen.Get(key)
	if object == nil || key.Kind.Kind != schema.Ingress.Kind {
		return nil
	}
	if object.Source != w.Source {
		if own := w.own.Get(key); own != nil {
			return wantedAddresses(own.UID, nil)
		}
		return nil
	}
	report := w.seen.Statuses().Value(key.Path())
	if !report.Of(object.UID) {
		return nil
	}
	return wantedAddresses(object.UID, report.Addresses)
}

// wantedAddresses returns addresses as the status of the Ingress with a uid. Without any, those of other
// managers stay.
func wantedAddresses(uid string, addresses []string) *wanted {
	points := []any{}
	for _, p := range ingressstatus.At(addresses).GetIngress() {
		if p.GetIp() != "" {
			points = append(points, map[string]any{"ip": p.GetIp()})
		} else {
			points = append(points, map[string]any{"hostname": p.GetHostname()})
		}
	}
	out := &wanted{texts: map[string]string{"uid": uid, "loadBalancer": strings.Join(addresses, " ")}, status: map[string]any{}, uid: uid}
	if len(points) == 0 {
		out.held = func(there *unstructured.Unstructured) bool { return !hasOurs(there) }
		return out
	}
	out.status["loadBalancer"] = map[string]any{"ingress": points}
	out.held = func(there *unstructured.Unstructured) bool {
		return slices.Equal(pointsIn(there), addresses)
	}
	return out
}

// hasOurs says whether the status of an object in a cluster has something of ours.
func hasOurs(there *unstructured.Unstructured) bool {
	return slices.ContainsFunc(there.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == FieldManager && m.Operation == metav1.ManagedFieldsOperationApply && m.Subresource == "status"
	})
}

// pointsIn returns the addresses and host names in the status of an Ingress in a cluster.
func pointsIn(there *unstructured.Unstructured) (out []string) {
	all, _, _ := unstructured.NestedSlice(there.Object, "status", "loadBalancer", "ingress")
	for _, one := range all {
		point, _ := one.(map[string]any)
		for _, field := range []string{"ip", "hostname"} {
			if text, ok := point[field].(string); ok && text != "" {
				out = append(out, text)
				break
			}
		}
	}
	return out
}
