package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// auditLog is a log of the requests to an API server.
type auditLog struct {
	t    *testing.T
	file string
}

// newAuditLog returns a log, and the flags of an API server that writes it.
func newAuditLog(t *testing.T) (a auditLog, flags []string) {
	t.Helper()
	policy := write(t, "policy.yaml", `{"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [{"level": "Metadata"}]}`)
	a = auditLog{t, filepath.Join(t.TempDir(), "audit.log")}
	return a, []string{"--audit-policy-file=" + policy, "--audit-log-path=" + a.file}
}

// auditedRequest is a request to an API server, and how it was answered.
type auditedRequest struct {
	Verb string
	User struct{ Username string }
	// ObjectRef is what the request is about.
	ObjectRef      struct{ Resource, Namespace, Name, Subresource string }
	ResponseStatus struct{ Code int }

	RequestReceivedTimestamp time.Time
}

func (r auditedRequest) String() string {
	o := r.ObjectRef
	return strings.TrimRight(fmt.Sprintf("%s %s/%s/%s", r.Verb, o.Resource, o.Name, o.Subresource), "/")
}

// of returns the requests of an account, in their order.
func (a auditLog) of(account string) (out []auditedRequest) {
	a.t.Helper()
	text, err := os.ReadFile(a.file)
	if err != nil {
		a.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var r auditedRequest
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			a.t.Fatalf("%v: %s", err, line)
		}
		if r.User.Username == account {
			out = append(out, r)
		}
	}
	return out
}

// follows says whether a request is one of those that read all objects of a kind, or the list of kinds.
func (r auditedRequest) follows() bool {
	return r.Verb == "list" || r.Verb == "watch" || r.Verb == "get" && r.ObjectRef.Resource == ""
}

// account makes a service account with a ClusterRole, and returns its name and a kubeconfig.
func (k *kubeCluster) account(name, role string) (user, config string) {
	k.t.Helper()
	const accounts = "/api/v1/namespaces/shop/serviceaccounts"
	k.must("POST", accounts, fmt.Sprintf(`{"metadata": {"name": %q}}`, name))
	user = "system:serviceaccount:shop:" + name
	k.must("POST", rbacPath+"clusterrolebindings", fmt.Sprintf(`{"metadata":{"name":%q},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":%q},
		"subjects":[{"kind":"ServiceAccount","name":%[1]q,"namespace":"shop"}]}`, name, role))
	code, _, text, err := k.api.do(k.t.Context(), "POST", accounts+"/"+name+"/token", `{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}`, nil)
	var request struct{ Status struct{ Token string } }
	if err == nil {
		err = json.Unmarshal([]byte(text), &request)
	}
	if err != nil || code != 201 {
		k.t.Fatalf("a token of %s: %d %v", name, code, err)
	}
	return user, kubeconfig(k.t, `server: "`+k.api.url+`", certificate-authority: "`+k.api.ca+`"`, "{token: "+request.Status.Token+"}")
}

// readersRole returns a role, named readers, without the rules for statuses.
func readersRole(t *testing.T, whole string) string {
	t.Helper()
	role := &rbacv1.ClusterRole{}
	if err := json.Unmarshal([]byte(whole), role); err != nil {
		t.Fatal(err)
	}
	role.Name = "readers"
	role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool { return !slices.Contains(r.Verbs, "list") })
	text, err := json.Marshal(role)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// awaitAddress waits until the status of an Ingress in the cluster has one address.
func (k *kubeCluster) awaitAddress(path, address string) {
	k.t.Helper()
	eventually(k.t, path+" has the address "+address, func() error {
		status, err := json.Marshal(k.get(path).Object["status"])
		if err == nil && string(status) != fmt.Sprintf(`{"loadBalancer":{"ingress":[{"ip":%q}]}}`, address) {
			err = errors.New(string(status))
		}
		return err
	})
}

// statusWriter is a server with an account of its own in the cluster.
type statusWriter struct {
	*server
	account string
}

// leaderOf waits until one of the servers leads, and returns it first.
func leaderOf(t *testing.T, servers ...statusWriter) (leader statusWriter, others []statusWriter) {
	t.Helper()
	eventually(t, "a server leads", func() error {
		for i, s := range servers {
			text, err := s.get("/metrics", nil)
			if err != nil {
				return err
			}
			if strings.Contains(string(text), "\nportolan_leader{job=\"server\"} 1\n") {
				leader, others = s, slices.Delete(slices.Clone(servers), i, i+1)
				return nil
			}
		}
		return errors.New("none does")
	})
	return leader, others
}

// TestKubernetesStatusWriters: of two servers the leader alone writes statuses into Kubernetes' own server,
// of its objects and of its Ingresses, and each once. Another one that leads later would write the same
// bytes, and so writes nothing but what is new. Without --write-status no server sends a request that
// writes, nor one that is refused.
func TestKubernetesStatusWriters(t *testing.T) {
	needEnvoy(t)
	path := needKubeAPIServer(t)
	audit, flags := newAuditLog(t)
	k := &kubeCluster{t, startKubeAPIServer(t, path, append(flags, withRBAC)...)}
	role := clusterRole(t, objectsPage)
	k.must("POST", rbacPath+"clusterroles", role)
	k.must("POST", rbacPath+"clusterroles", readersRole(t, role))
	const ingresses, entries = "/apis/networking.k8s.io/v1/namespaces/shop/ingresses", "/apis/networking.istio.io/v1/namespaces/shop/serviceentries"
	k.must("POST", "/apis/networking.k8s.io/v1/ingressclasses", `{"metadata": {"name": "istio"}, "spec": {"controller": "istio.io/ingress-controller"}}`)
	k.must("POST", ingresses, `{"metadata": {"name": "web"}, "spec": {"ingressClassName": "istio", "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}}`)
	k.entry("one")
	serve := func(etcd, name, role string, args ...string) statusWriter {
		t.Helper()
		account, config := k.account(name, role)
		s := startServer(t, serverOptions{etcd: etcd, args: append([]string{"--config-kube", "east=" + config}, args...)})
		s.awaitSource("kube://east", "", 3)
		return statusWriter{s, account}
	}

	// Nobody asks these servers for statuses in the cluster, and they have no right to write them. They run
	// on beside the writers, so they have the time to write.
	plain := startEtcd(t)
	readers := []statusWriter{serve(plain, "reader-1", "readers"), serve(plain, "reader-2", "readers")}
	readers[0].awaitCondition("serviceentries", "one", "Accepted", "True", "was seen by the servers")
	leaderOf(t, readers...)
	if status := k.get(entries + "/one").Object["status"]; status != nil {
		t.Errorf("without --write-status a status was written: %v", status)
	}

	etcd := startEtcd(t)
	leader, others := leaderOf(t, serve(etcd, "writer-1", "portolan-istio", "--write-status"), serve(etcd, "writer-2", "portolan-istio", "--write-status"))
	next := others[0]
	next.startEnvoy(envoyOptions{kind: "router", name: "edge", namespace: "istio-system", ip: "127.0.0.1", labels: "istio=ingressgateway", variant: protocol.Delta})
	k.condition("serviceentries", "one", "Accepted", "True", "was seen by the servers")
	k.awaitAddress(ingresses+"/web", "127.0.0.1")
	k.entry("two")
	k.condition("serviceentries", "two", "Accepted", "True", "was seen by the servers")
	versions := func() string {
		return k.get(entries+"/one").GetResourceVersion() + " " + k.get(ingresses+"/web").GetResourceVersion()
	}
	before, killed := versions(), time.Now()

	// The leader goes: the other one compares all, and writes what is new.
	leader.kill()
	leaderOf(t, next)
	k.entry("three")
	k.condition("serviceentries", "three", "Accepted", "True", "was seen by the servers")
	if now := versions(); now != before {
		t.Errorf("the next leader wrote statuses that do not differ: versions %s after %s", now, before)
	}
	for s, want := range map[statusWriter][]string{
		readers[0]: nil, readers[1]: nil, next: {"patch serviceentries/three/status"},
		leader: {"patch ingresses/web/status", "patch serviceentries/one/status", "patch serviceentries/two/status"},
	} {
		var writes []string
		for _, q := range audit.of(s.account) {
			switch {
			case q.ResponseStatus.Code == http.StatusForbidden:
				t.Errorf("%s was refused %s", s.account, q)
			case q.follows():
			case len(want) == 0, s == next && q.RequestReceivedTimestamp.Before(killed):
				t.Errorf("%s does not lead, or was not asked for statuses, and sent %s", s.account, q)
			case q.Verb != "get": // a leader compares
				writes = append(writes, q.String())
			}
		}
		if slices.Sort(writes); !slices.Equal(writes, want) {
			t.Errorf("%s sent %v, want %v", s.account, writes, want)
		}
	}
}
