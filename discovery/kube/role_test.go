package kube_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/discovery/kube"
)

// TestTheRoleIsTheLeast: the role in the documentation allows what the registry asks for, and no
// more.
func TestTheRoleIsTheLeast(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/tasks/one-mesh-over-a-cluster-and-machines.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "<<'END'\n")
	text, _, _ = strings.Cut(text, "END\n")
	documents := strings.Split(text, "---\n")
	i := slices.IndexFunc(documents, func(one string) bool { return strings.Contains(one, "kind: ClusterRole\n") })
	if i < 0 {
		t.Fatal("the page has no ClusterRole")
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict([]byte(documents[i]), role); err != nil {
		t.Fatal(err)
	}
	var allowed []string
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					allowed = append(allowed, strings.TrimPrefix(group+"/"+resource+" "+verb, "/"))
				}
			}
		}
	}
	slices.Sort(allowed)
	a, _, _, _ := shop(t)
	newRig(t, kube.Options{}).follow(a, "east")
	var asked []string
	newRig(t, kube.Options{}).await("it asks for all that the role allows", func() bool {
		asked = a.Asked()
		return len(asked) >= len(allowed)
	})
	expect(t, asked, allowed)
}
