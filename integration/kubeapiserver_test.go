package integration

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"sigs.k8s.io/yaml"

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
	r, err := http.NewRequestWithContext(ctx, method, a.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if a.token != "" {
		r.Header.Set("Authorization", "Bearer "+a.token)
	}
	r.Header.Set("User-Agent", "machinery/v1")
	for name, value := range header {
		r.Header.Set(name, value)
	}
	answer, err := a.client.Do(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, answer.Header, string(text), err
}

// oneKubernetes is held by the test that runs API servers: each needs much of the machine.
var oneKubernetes sync.Mutex

// needKubeAPIServer skips a test if there is no kube-apiserver, which takes minutes to build. Such
// tests run one after the other, beside all others.
func needKubeAPIServer(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat(kubeAPIServerBinary); err != nil {
		t.Skipf("there is no kube-apiserver (%v): run make kube-apiserver", err)
	}
	t.Parallel()
	oneKubernetes.Lock()
	t.Cleanup(oneKubernetes.Unlock)
	return kubeAPIServerBinary
}

// withRBAC is the flag of an API server that asks for rights.
const withRBAC = "--authorization-mode=RBAC"

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
	if !slices.Contains(flags, withRBAC) {
		flags = append(flags, "--authorization-mode=AlwaysAllow")
	}
	dir := t.TempDir()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	const token = "machinery-of-the-test"
	users := newAuthority(t, "users")
	files := map[string][]byte{
		"users.pem": users.pair.Cert,
		"sa.key":    pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)}),
		"tokens":    []byte(token + ",tester,tester,system:masters\n" + followerToken + ",follower,follower\n"),
		"empty.crt": nil,
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	port := freePort(t)
	etcd, etcdAddress := startEtcdWithClient(t)
	in := func(name string) string { return filepath.Join(dir, name) }
	program := processtest.Options{Name: "kube-apiserver", Path: path, Args: append([]string{
		"--etcd-servers=http://" + etcdAddress, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port), "--cert-dir=" + in("certs"),
		"--token-auth-file=" + in("tokens"), "--service-cluster-ip-range=10.96.0.0/16",
		"--service-account-issuer=https://localhost", "--service-account-key-file=" + in("sa.key"), "--service-account-signing-key-file=" + in("sa.key"),
		"--disable-admission-plugins=ServiceAccount", "--client-ca-file=" + in("users.pem"),
	}, flags...)}
	a := kubeAPI{url: fmt.Sprintf("https://127.0.0.1:%d", port), token: token, ca: in("certs/apiserver.crt"), tokens: in("tokens"), users: users, etcd: etcd, program: program, client: &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // its certificate is its own
	}}
	t.Cleanup(a.client.CloseIdleConnections)
	a.process = processtest.Start(t, program)
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
	eventuallyWithin(t, 4*patience, "kube-apiserver is ready", func() error {
		code, _, body, err := a.do(t.Context(), "GET", "/readyz", "", nil)
		if err == nil && code != 200 {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
}

// install installs the definitions that Istio publishes.
func (a kubeAPI) install(t *testing.T) {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "istio.io/api").Output()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "kubernetes", "customresourcedefinitions.gen.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range bytes.Split(text, []byte("\n---\n")) {
		asJSON, err := yaml.YAMLToJSON(document)
		if err != nil {
			t.Fatal(err)
		}
		if string(asJSON) == "null" {
			continue
		}
		if code, _, body, err := a.do(t.Context(), "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", string(asJSON), nil); err != nil || code != 201 {
			t.Fatalf("%d %s %v", code, body, err)
		}
	}
	eventually(t, "Istio's kinds are served", func() error {
		for _, path := range []string{"networking.istio.io/v1/serviceentries", "networking.istio.io/v1/virtualservices"} {
			if code, _, body, err := a.do(t.Context(), "GET", "/apis/"+path, "", nil); err != nil || code != 200 {
				return fmt.Errorf("%s: %d %s %v", path, code, body, err)
			}
		}
		code, _, body, err := a.do(t.Context(), "GET", "/openapi/v3/apis/networking.istio.io/v1", "", nil)
		if err == nil && (code != 200 || !json.Valid([]byte(body))) {
			err = fmt.Errorf("OpenAPI: %d", code)
		}
		return err
	})
	if code, _, body, err := a.do(t.Context(), "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop"}}`, nil); err != nil || code != 201 {
		t.Fatalf("%d %s %v", code, body, err)
	}
}
