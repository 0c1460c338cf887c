package integration

import (
	"context"
	"net/http"
	"os"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/integration/kubeapi"
	"github.com/portolan-mesh/portolan/integration/processtest"
)

// kubeAPIServerBinary is where `make kube-apiserver` puts Kubernetes' own server.
const kubeAPIServerBinary = "../.tools/kube-apiserver"

// kubeAPI is an API in the shape of Kubernetes.
type kubeAPI struct {
	url, token string
	client     *http.Client
	// ca is the file of the certificate, tokens that of the tokens of users, which is read at the
	// start; program and process are what runs, and etcd has what it stores.
	ca, tokens string
	program    processtest.Options
	process    *processtest.Process
	etcd       *clientv3.Client
	users      *authority // signs the certificates of users
}

// do returns the code, the header and the body of an answer.
func (a kubeAPI) do(ctx context.Context, method, path, body string, header map[string]string) (int, http.Header, string, error) {
	return a.plain().Do(ctx, method, path, body, header)
}

func (a kubeAPI) plain() kubeapi.API {
	return kubeapi.API{URL: a.url, Token: a.token, Client: a.client}
}

// needKubeAPIServer skips a test if there is no kube-apiserver, which takes minutes to build. Such
// tests are not parallel: API servers need much of the machine.
func needKubeAPIServer(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(kubeAPIServerBinary); err != nil {
		t.Skipf("there is no kube-apiserver (%v): run make kube-apiserver", err)
	}
	return kubeAPIServerBinary
}

// withRBAC is the flag of an API server that asks for rights.
const withRBAC = kubeapi.WithRBAC

// startKubeAPIServer starts Kubernetes' own server with Istio's kinds, on an etcd of its own. It
// lets everybody do everything, unless a flag says otherwise.
func startKubeAPIServer(t *testing.T, path string, flags ...string) kubeAPI {
	t.Helper()
	a := launchKubeAPIServer(t, path, flags...)
	a.awaitReady(t)
	a.install(t)
	return a
}

// launchKubeAPIServer is startKubeAPIServer without waiting, and without Istio's kinds.
func launchKubeAPIServer(t *testing.T, path string, flags ...string) kubeAPI {
	t.Helper()
	users := newAuthority(t, "users")
	etcd, etcdAddress := startEtcdWithClient(t)
	server, err := kubeapi.Prepare(kubeapi.Options{
		Dir: t.TempDir(), Etcd: "http://" + etcdAddress, Port: freePort(t), Users: users.pair.Cert, Tokens: followerToken + ",follower,follower\n", Flags: flags,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Client.CloseIdleConnections)
	a := kubeAPI{
		url: server.URL, token: server.Token, client: server.Client, ca: server.CA, tokens: server.Tokens, users: users, etcd: etcd,
		program: processtest.Options{Name: "kube-apiserver", Path: path, Args: server.Args},
	}
	a.process = processtest.Start(t, a.program)
	return a
}

// followerToken is the token of a user without rights.
const followerToken = "follower-of-the-test"

// start runs the server and waits until it is ready.
func (a *kubeAPI) start(t *testing.T) {
	t.Helper()
	a.process = processtest.Start(t, a.program)
	a.awaitReady(t)
}

func (a *kubeAPI) awaitReady(t *testing.T) {
	t.Helper()
	eventuallyWithin(t, 4*patience, "kube-apiserver is ready", func() error { return a.plain().Ready(t.Context()) })
}

// install installs the definitions that Istio publishes, and makes the namespace shop.
func (a kubeAPI) install(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := a.plain().Install(ctx); err != nil {
		t.Fatal(err)
	}
	if code, _, body, err := a.do(t.Context(), "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`, nil); err != nil || code != 201 {
		t.Fatalf("%d %s %v", code, body, err)
	}
}
