package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// TestKubernetesSecrets: a gateway ends TLS with a Secret of Kubernetes' own server, which an account
// with the rights of the page reads. It follows a renewal, and a secret of the store goes before.
func TestKubernetesSecrets(t *testing.T) {
	needEnvoy(t)
	needKubeAPIServer(t)
	port := freePort(t)
	objects := pageObjects(t, "secrets-of-a-cluster.md", 2, strings.NewReplacer("number: 8443", fmt.Sprintf("number: %d", port), "hosts:", "bind: 127.0.0.1\n    hosts:"))
	role, err := yaml.YAMLToJSON([]byte(objects[0]))
	if err != nil {
		t.Fatal(err)
	}
	k := &kubeCluster{t, startKubeAPIServer(t, kubeAPIServerBinary, withRBAC)}
	of := newAuthority(t, "authority")
	one, two, own := of.issue(time.Hour, "*.shop.test"), of.issue(2*time.Hour, "*.shop.test"), of.issue(3*time.Hour, "*.shop.test")
	const secrets, rbac = "/api/v1/namespaces/shop/secrets", "/apis/rbac.authorization.k8s.io/v1/namespaces/shop/"
	k.must("POST", secrets, kubeSecret(t, "shop", one))
	file := kubeconfig(t, `server: "`+k.api.url+`", certificate-authority: "`+k.api.ca+`"`, "{token: "+followerToken+"}")
	s := startServer(t, serverOptions{args: []string{"--secrets-kube", "east=" + file + "=shop"}})
	s.apply(objects[1], tlsAnswer("door", "door"))
	s.startEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", variant: protocol.Delta})

	// The right is missing: who is asked says so.
	const account, right = "the account follower may not ", " secrets in the namespace shop"
	denied := func(text string) bool { return strings.Contains(text, account) && strings.Contains(text, right) }
	for _, args := range [][]string{{"source", "list"}, {"source", "describe", "secrets/east"}, {"describe", "gateway", "door", "-n", "shop"}} {
		eventually(t, strings.Join(args, " ")+" names the right", func() error {
			if out := s.must("", args...); !denied(strings.Join(strings.Fields(out), " ")) {
				return errors.New(out)
			}
			return nil
		})
	}
	if ready, err := s.get("/readyz?verbose", nil); err != nil || !denied(string(ready)) {
		t.Errorf("/readyz says %s (%v)", ready, err)
	}
	k.must("POST", rbac+"roles", string(role))
	k.must("POST", rbac+"rolebindings", `{"metadata":{"name":"portolan"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"portolan-secrets"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"follower"}]}`)
	presents := func(want secrettest.Pair) {
		t.Helper()
		eventually(t, "the gateway has the certificate", func() error {
			got, err := tlsCall{port: port, name: "door.shop.test", of: of}.get(t.Context())
			if err == nil && (got.body != "door" || !got.leaf.Equal(want.Parsed)) {
				err = fmt.Errorf("it answers %q with a certificate until %s", got.body, got.leaf.NotAfter)
			}
			return err
		})
	}
	presents(one)
	k.must("PUT", secrets+"/door", kubeSecret(t, "shop", two))
	presents(two)
	for _, args := range [][]string{{"get", "secrets", "-A"}, {"export"}} {
		if out := s.must("", args...); strings.Contains(out, "kind: Secret") || strings.Contains(out, "door-") {
			t.Errorf("%v shows a secret of the cluster: %s", args, out)
		}
	}

	s.apply(keyPair("door", own, nil))
	presents(own)
	if out := s.must("", "source", "describe", "secrets/east"); !strings.Contains(out, "door") || !strings.Contains(out, "store") {
		t.Errorf("it is not told that the secret of the store counts: %s", out)
	}
	s.must("", "delete", "secret", "door", "-n", "shop")
	presents(two)
	k.api.process.Kill()
	eventually(t, "the cluster is away", func() error {
		ready, err := s.get("/readyz?verbose", nil)
		if err == nil && !strings.Contains(string(ready), "secrets of cluster east: what was read of them is served") {
			err = fmt.Errorf("%s", ready)
		}
		return err
	})
	s.awaitMetric(`portolan_source_degraded{source="secrets/east"}`, "1")
	presents(two)
}

// kubeSecret is the Secret door of a namespace in JSON.
func kubeSecret(t *testing.T, namespace string, p secrettest.Pair) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": map[string]any{"name": "door", "namespace": namespace},
		"data": map[string][]byte{"tls.crt": p.Cert, "tls.key": p.Key},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
