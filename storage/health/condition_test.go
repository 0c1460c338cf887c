package health_test

import (
	"strings"
	"testing"

	metav1alpha1 "istio.io/api/meta/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/health"
)

// TestFromConditions: the first condition Healthy counts, whatever follows it.
func TestFromConditions(t *testing.T) {
	t.Parallel()
	for conditions, want := range map[string]string{
		"":                             "",
		"Reconciled=True":              "",
		"Healthy=True":                 "healthy",
		"Reconciled=x Healthy=False":   "unhealthy",
		"Healthy=False Healthy=True":   "unhealthy",
		"Healthy=Unknown Healthy=True": "",
		"Healthy=":                     "",
	} {
		var all []*metav1alpha1.IstioCondition
		for _, one := range strings.Fields(conditions) {
			kind, status, _ := strings.Cut(one, "=")
			all = append(all, &metav1alpha1.IstioCondition{Type: kind, Status: status})
		}
		got := ""
		if r := health.FromConditions(all); r != nil {
			got = map[bool]string{true: "healthy", false: "unhealthy"}[r.Healthy]
		}
		if got != want {
			t.Errorf("%s: %q, want %q", conditions, got, want)
		}
	}
}
