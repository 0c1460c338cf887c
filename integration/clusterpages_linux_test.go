package integration

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// clusterPages are the pages of docs/tasks that need a cluster.
var clusterPages = []string{servicesPage, secretsPage, "move-from-istio.md"}

// save writes the YAML blocks of a page to the files that it names.
func (s *shell) save(page string, files ...string) {
	s.t.Helper()
	for i, text := range pageObjects(s.t, page, len(files), strings.NewReplacer()) {
		if err := os.WriteFile(filepath.Join(s.dir, files[i]), []byte(text), 0o600); err != nil {
			s.t.Fatal(err)
		}
	}
}

// TestKubernetesPages runs the commands of the pages that need a cluster, with Kubernetes' own server and
// real rights. What a cluster makes of a Deployment is there from the start: a pod, and its slice.
func TestKubernetesPages(t *testing.T) {
	path := needKubeAPIServer(t)
	s := newShell(t)
	s.dir = t.TempDir()
	api := startKubeAPIServer(t, path, withRBAC)
	c := newTestCluster(t, api)
	s.n.ip("address", "add", "10.1.0.1/24", "dev", "lo")
	pod := serveUpstream(t, "pod", s.n.listen("10.1.0.1:8080"))
	c.apply(`{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, ports: [{name: http, port: 8000}]}}`)
	c.runs("shop", "pod", "10.1.0.1", "web")
	c.serves("shop", "web", pod, "10.1.0.1", podReady)
	c.apply(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web], http: [{route: [{destination: {host: web}}], timeout: 5s}]}
`)
	// The cluster is outside of the network in which the commands run.
	passOn(t, s.n.listen("127.0.0.1:6443"), func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", strings.TrimPrefix(api.url, "https://"))
	})
	tools, err := filepath.Abs(filepath.Dir(c.kubectl.path))
	if err != nil {
		t.Fatal(err)
	}
	s.env = append(s.env, "KUBECONFIG="+kubeconfig(t, `server: "https://127.0.0.1:6443", certificate-authority: "`+api.ca+`"`, "{token: "+api.token+"}"),
		strings.Replace(s.env[0], "PATH=", "PATH="+tools+":", 1), "HOME="+s.tmp)

	const call = "curl -sSf --retry 9 --retry-delay 1 --retry-connrefused -H 'Host: web.shop.svc.cluster.local' http://127.0.0.1:8000/"
	answered := func(out map[string]string) {
		t.Helper()
		if !strings.Contains(out[call], `"Upstream":"pod"`) {
			t.Errorf("the pod has not answered: %q", out[call])
		}
	}
	answered(s.run(fences(t, "docs/tasks/"+servicesPage)...))
	for host, address := range map[string]string{"web.shop.svc.cluster.local": " 10.0.0.7 ", "shop.example.com": " 10.1.0.1 "} {
		eventually(t, host+" has "+address, func() error {
			out, err := s.try("portolan describe service " + host)
			if err == nil && !strings.Contains(out, address) {
				err = fmt.Errorf("it has %s", out)
			}
			return err
		})
	}
	s.stop("envoy")
	s.stop("portolan")

	s.save(secretsPage, "secrets-role.yaml", "door.yaml")
	const door = "curl -sSf --retry 9 --retry-delay 1 --retry-connrefused --connect-to ::127.0.0.1:8443 --cacert door.pem https://door.shop.test/"
	if out := s.run(fences(t, "docs/tasks/"+secretsPage)...); !strings.HasSuffix(out[door], "the door is open") || !strings.Contains(out["portolan source describe secrets/east"], "secret/shop/door") {
		t.Errorf("the gateway with a secret of the cluster: %q\n%s", out[door], out["portolan source describe secrets/east"])
	}
	s.stop("envoy")
	s.stop("portolan")

	s.save("read-objects-of-a-cluster.md", "istio-role.yaml")
	blocks := fences(t, "docs/tasks/move-from-istio.md")
	last := len(blocks) - 1
	out := s.run(blocks[:last]...)
	answered(out)
	if text := out["cat cluster.txt"]; !strings.Contains(text, "virtualservice/shop/web") {
		t.Errorf("the explanation does not name the VirtualService: %s", text)
	}
	s.stop("portolan")
	for _, role := range []string{"istio-role.yaml", "role.yaml", "istio-role.yaml"} { // in any order
		s.run("kubectl apply -f " + role)
	}
	for _, right := range []string{"list virtualservices.networking.istio.io", "watch endpointslices.discovery.k8s.io"} {
		s.run("kubectl auth can-i " + right + " -A --as system:serviceaccount:kube-system:portolan")
	}
	out = s.run(blocks[last])
	answered(out)
	if text := out["portolan source list"]; strings.Contains(text, "kube://") || !strings.Contains(text, "services/east") {
		t.Errorf("the sources are\n%s", text)
	}
}
