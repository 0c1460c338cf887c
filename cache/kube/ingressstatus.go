package kube

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/storage/schema/ingressstatus"
	"github.com/portolan-mesh/portolan/storage/status"
)

// addressesOf returns the addresses of a report about an Ingress, as the status of the Ingress. Without
// any, those of other managers stay.
func addressesOf(report *status.Report) *wanted {
	points := []any{}
	for _, p := range ingressstatus.At(report.Addresses).GetIngress() {
		if p.GetIp() != "" {
			points = append(points, map[string]any{"ip": p.GetIp()})
		} else {
			points = append(points, map[string]any{"hostname": p.GetHostname()})
		}
	}
	out := &wanted{texts: map[string]string{"loadBalancer": strings.Join(report.Addresses, " ")}, status: map[string]any{}}
	if len(points) == 0 {
		out.held = func(there *unstructured.Unstructured) bool { return !hasOurs(there) }
		return out
	}
	out.status["loadBalancer"] = map[string]any{"ingress": points}
	out.held = func(there *unstructured.Unstructured) bool {
		return slices.Equal(pointsIn(there), report.Addresses)
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
