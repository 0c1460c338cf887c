package integration

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// apiClients is where `make api-clients` puts clients of the Kubernetes API: their own libraries,
// of pinned versions, with the scenarios of .ci/clients, Helm, and the client in Python.
const apiClients = "../.tools/api-clients"

// apiClient returns the path of one of the clients. If it is not there, the test is skipped, but
// fails in CI.
func apiClient(t *testing.T, name string) string {
	t.Helper()
	return builtTool(t, name, filepath.Join(apiClients, name), "api-clients")
}

// kubeconfigFile writes a kubeconfig of the plain port.
func (s *server) kubeconfigFile(t *testing.T) string {
	t.Helper()
	return kubeconfig(t, `server: "http://`+s.api+`"`, "{}")
}

// kubeconfigFile writes a kubeconfig as people have it for a cluster: with TLS and the token of an
// administrator.
func (s *secureServer) kubeconfigFile(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(s.api)
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(s.must("", "user", "create", "gitops", "--role", "admin"))
	return kubeconfig(t, `server: "https://localhost:`+port+`", certificate-authority: "`+s.files.CA+`"`, "{token: "+token+"}")
}

func kubeconfig(t *testing.T, cluster, user string) string {
	t.Helper()
	return write(t, "kubeconfig", fill(`
apiVersion: v1
kind: Config
clusters:
- {name: mesh, cluster: {$cluster}}
users:
- {name: gitops, user: $user}
contexts:
- {name: mesh, context: {cluster: mesh, user: gitops, namespace: shop}}
current-context: mesh
`, "$cluster", cluster, "$user", user))
}

// clientRun is a client with a kubeconfig.
type clientRun struct {
	path, kubeconfig, home string
	env                    []string
}

// run returns the output of a client, on both streams, and whether it succeeded.
func (c clientRun) run(t *testing.T, args ...string) (string, bool) {
	t.Helper()
	command := exec.CommandContext(t.Context(), c.path, args...)
	command.Env = append([]string{"HOME=" + c.home, "KUBECONFIG=" + c.kubeconfig, "PATH=" + os.Getenv("PATH")}, c.env...)
	out, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(out), err == nil
}

// flawedForFlux is the test of .ci/clients that wants a proxy which refuses.
const flawedForFlux = "TestFluxWaits"

// TestAPIClients: controllers and tools of GitOps work as in a cluster, over TLS and with a
// token. What they do is in .ci/clients; each of its tests is one here.
func TestAPIClients(t *testing.T) {
	t.Parallel()
	paths := []string{apiClient(t, "clients"), apiClient(t, "argocd")}
	s := startSecureServer(t, serverOptions{})
	kubeconfig := s.kubeconfigFile(t)
	for _, path := range paths {
		c := clientRun{path: path, kubeconfig: kubeconfig, home: t.TempDir()}
		list, ok := c.run(t, "-test.list", ".")
		names := slices.DeleteFunc(strings.Fields(list), func(name string) bool { return name == flawedForFlux })
		if !ok || len(names) == 0 {
			t.Fatalf("%s has no tests: %s", path, list)
		}
		for _, name := range names {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				if out, ok := c.run(t, "-test.run", "^"+name+"$", "-test.v"); !ok || !strings.Contains(out, "--- PASS: "+name) {
					t.Error(out)
				}
			})
		}
	}
}

// TestFluxSeesARefusal: what a proxy refuses is failed for Flux, which waits no longer and says
// which object it is.
func TestFluxSeesARefusal(t *testing.T) {
	t.Parallel()
	path := apiClient(t, "clients")
	s := startServer(t, serverOptions{})
	proxy, err := xdstest.Open(t, s.xds, xdstest.ClientOptions{
		Node:    xdstest.NewNode("sidecar", "10.0.0.9", "web", "shop", nil),
		Variant: protocol.Delta, // so that it refuses what is new alone
		Refuse: func(a *xdstest.Answer) string {
			for _, name := range a.Names() {
				if strings.Contains(name, ".refused") {
					return "the cluster " + name + " is not to its taste"
				}
			}
			return ""
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	proxy.Subscribe(xdstest.ClusterType, "*")
	proxy.AwaitAnswer(xdstest.ClusterType, 0)
	s.apply(ship("shop", "first", "10.0.0.2"))
	s.must("", "wait", "se/first", "-n", "shop", "--for=condition=Programmed") // from then on new objects have conditions at once
	c := clientRun{path: path, kubeconfig: s.kubeconfigFile(t), home: t.TempDir()}
	out, ok := c.run(t, "-test.run", "^"+flawedForFlux+"$", "-test.v")
	if !ok || !strings.Contains(out, "--- PASS: "+flawedForFlux) {
		t.Fatal(out)
	}
	t.Log(out)
}

// TestPythonClient: the client of Kubernetes in Python does what programs do with it.
func TestPythonClient(t *testing.T) {
	t.Parallel()
	python := apiClient(t, "python/bin/python")
	s := startSecureServer(t, serverOptions{})
	c := clientRun{path: python, kubeconfig: s.kubeconfigFile(t), home: t.TempDir()}
	if out, ok := c.run(t, "testdata/apiclients/client.py"); !ok || !strings.Contains(out, "leader works") {
		t.Error(out)
	}
}
