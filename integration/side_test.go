package integration

import (
	"fmt"
	"strings"
	"testing"
)

// strayRoute routes to a host that nobody has.
const strayRoute = `
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: reviews, namespace: blog}
spec:
  hosts: [reviews.blog.test]
  http: [{route: [{destination: {host: nowhere.blog.test}}]}]
`

// TestSideKindsByKubectl: the kinds of Kubernetes beside those of the mesh, by kubectl, on a real
// etcd. A namespace is there from its first object on, and goes with what is in it. What
// becomes of objects is told by events.
func TestSideKindsByKubectl(t *testing.T) {
	t.Parallel()
	s := startServer(t, serverOptions{})
	k := newKubectl(t, s)
	k.args = k.args[:1] // each command names its namespace
	words := func(line string) []string { return strings.Fields(line) }
	shows := func(line string, want ...string) {
		t.Helper()
		eventually(t, "kubectl "+line, func() error {
			out, ok := k.run("", words(line)...)
			for _, word := range want {
				if !ok || !strings.Contains(out, word) {
					return fmt.Errorf("it says nothing of %q: %s", word, out)
				}
			}
			return nil
		})
	}
	shows("get namespaces", "default", "istio-system")
	k.expectOutput(false, "", words("get namespace shop"), `namespaces "shop" not found`)
	k.expectOutput(true, "", words("create namespace shop"), "namespace/shop created")
	k.expectOutput(true, "", words("label namespace shop team=a"), "namespace/shop labeled")
	k.expectOutput(true, "", words("get ns -l team=a -o name"), "namespace/shop")
	k.expectOutput(true, "", words("describe ns shop"), "team=a", "Active")
	k.expectOutput(true, "", words("create configmap settings -n shop --from-literal=color=red"), "configmap/settings created")
	settings := "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {color: blue}}"
	k.expectOutput(true, settings, words("apply --validate=false -f -"), "configmap/settings configured")
	k.expectOutput(true, settings, words("apply --validate=false --server-side --force-conflicts -f -"), "configmap/settings serverside-applied")
	k.expectOutput(false, "", words("delete namespace default"), "namespace default is not deleted")

	s.apply(strayRoute)
	shows("get namespaces", "blog")
	shows("get events -n blog -o yaml", "type: Warning", "kind: VirtualService", "nowhere.blog.test")
	shows("events -n blog --for virtualservice/reviews", "Warning", "nowhere.blog.test")
	shows("describe virtualservice reviews -n blog", "Events:", "portolan")
	k.expectOutput(true, "", words("get events -n blog --field-selector type=Warning,involvedObject.name=reviews -o name"), "event/reviews.")
	k.expectOutput(true, "", words("delete namespace blog --dry-run=server"), "1 virtualservices", "server dry run")
	k.expectOutput(true, "", words("get virtualservices -n blog -o name"), "reviews")
	k.expectOutput(true, "", words("delete namespace blog"), `"blog" deleted`)
	k.expectOutput(true, "", words("get virtualservices,events -A"), "No resources found")
	k.expectOutput(true, "", words("get namespaces"), "shop")

	s.kill()
	s.start()
	k.expectOutput(true, "", words("get ns -l team=a -o name"), "namespace/shop")
	k.expectOutput(true, "", words("get configmap settings -n shop -o yaml"), "color: blue")
}
