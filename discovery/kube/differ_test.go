package kube_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
	"github.com/portolan-mesh/portolan/discovery/rows"
)

// TestExternalNamesDiffer: of a name that is an ExternalName in one cluster alone, or another one, the oldest
// Service counts, and the sources of the others say so.
func TestExternalNamesDiffer(t *testing.T) {
	t.Parallel()
	service := func(name, external string, age int64) *corev1.Service {
		return kubetest.NewService("shop", name, func(s *corev1.Service) {
			s.CreationTimestamp = metav1.Unix(100-age, 0)
			if external != "" {
				s.Spec.Type, s.Spec.ClusterIP, s.Spec.ExternalName, s.Spec.Selector = corev1.ServiceTypeExternalName, "", external, nil
			}
		})
	}
	east, west := kubetest.New(t), kubetest.New(t)
	east.Put(service("web", "", 2), service("db", "db.example", 2), service("same", "a.example", 1), service("other", "a.example", 1), service("tie", "", 1), service("alone", "a.example", 1))
	west.Put(service("web", "web.example", 1), service("db", "", 1), service("same", "a.example", 2), service("other", "b.example", 2), service("tie", "tie.example", 1))
	r := newRig(t, kube.Options{})
	one, _ := r.follow(west, "west")
	two, _ := r.follow(east, "east")
	got := map[string][]kube.Flaw{}
	for _, s := range r.clusters.Status() {
		got[s.Cluster] = s.Flaws
	}
	const mend = ": make them alike, or give one another name"
	expect(t, got, map[string][]kube.Flaw{
		"west": {
			{Object: "Service shop/web", Reason: "it has externalName web.example, and that of cluster east counts, which has no externalName" + mend},
			{Object: "Service shop/db", Reason: "it has no externalName, and that of cluster east counts, which has externalName db.example" + mend},
		},
		"east": {
			{Object: "Service shop/other", Reason: "it has externalName a.example, and that of cluster west counts, which has externalName b.example" + mend},
			{Object: "Service shop/tie", Reason: "it has no externalName, and that of cluster west counts, which has externalName tie.example" + mend},
		},
	})
	// The row of each name has the external name that the flaws say.
	byName := map[string][]*discovery.Service{}
	for _, s := range append(two.Services(), one.Services()...) {
		byName[s.Attributes.Name] = append(byName[s.Attributes.Name], s)
	}
	counts := map[string]string{}
	for name, services := range byName {
		counts[name] = string(rows.NewService(services, nil).ExternalName())
	}
	expect(t, counts, map[string]string{"web": "", "db": "db.example", "same": "a.example", "other": "b.example", "tie": "tie.example", "alone": "a.example"})
}
