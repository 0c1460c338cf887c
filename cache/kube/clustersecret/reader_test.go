package clustersecret_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cache/kube/cluster/clustertest"
	"github.com/portolan-mesh/portolan/cache/kube/clustersecret"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api is an API server with secrets, which it lists anew at each change: a watch ends then.
type api struct {
	*httptest.Server

	mu      sync.Mutex // guards the fields below
	version int
	secrets map[string]*corev1.Secret
	denied  string // the namespace that may not be read
	changed chan struct{}
	asked   map[string]bool
}

func newAPI(t *testing.T) *api {
	a := &api{secrets: map[string]*corev1.Secret{}, changed: make(chan struct{}), asked: map[string]bool{}}
	a.Server = clustertest.Serve(t, a)
	return a
}

func (a *api) change(by func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	by()
	a.version++
	close(a.changed)
	a.changed = make(chan struct{})
}

func (a *api) put(namespace, name string, kind corev1.SecretType, data map[string][]byte) {
	a.change(func() {
		a.secrets[namespace+"/"+name] = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: fmt.Sprint(a.version + 1)}, Type: kind, Data: data,
		}
	})
}

// ServeHTTP implements http.Handler.
func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/")
	w.Header().Set("Content-Type", "application/json")
	a.mu.Lock()
	a.asked[r.Method+" "+r.URL.Path+" "+r.URL.Query().Get("fieldSelector")] = true
	changed, denied := a.changed, a.denied == path[0]
	list := corev1.SecretList{TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: fmt.Sprint(a.version)}}
	for _, s := range a.secrets {
		if s.Namespace == path[0] {
			list.Items = append(list.Items, *s)
		}
	}
	since := fmt.Sprint(a.version)
	a.mu.Unlock()
	refuse := func(code int, reason string) {
		w.WriteHeader(code)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":%q,"code":%d}`, reason, code)
	}
	switch {
	case denied:
		refuse(http.StatusForbidden, "Forbidden")
	case r.URL.Query().Get("sendInitialEvents") != "":
		refuse(http.StatusUnprocessableEntity, "Invalid")
	case r.URL.Query().Get("watch") == "":
		_ = json.NewEncoder(w).Encode(list)
	case r.URL.Query().Get("resourceVersion") != since:
		refuse(http.StatusGone, "Expired")
	default:
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-changed:
			_, _ = fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`+"\n")
		}
	}
}

func (a *api) source(t *testing.T, name string, namespaces ...string) clustersecret.Source {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"kind": "Config", "apiVersion": "v1", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
"clusters": [{"name": "c", "cluster": {"server": %q}}]}`, a.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(cluster.Options{Name: name, File: file, RetryMin: time.Millisecond, RetryMax: 5 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	return clustersecret.Source{Cluster: c, Namespaces: namespaces}
}

// run runs a reader, and returns a function that waits until something holds of it.
func run(t *testing.T, o clustersecret.Options) (*clustersecret.Reader, func(what string, holds func(clustersecret.Set) bool)) {
	t.Helper()
	o.Worker = cache.NewWorker()
	r := clustersecret.New(o)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = o.Worker.Run(ctx) })
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return r, func(what string, holds func(clustersecret.Set) bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !holds(r.Set()); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("it does not come true that %s", what)
			}
		}
	}
}

// certificate returns the certificate of a secret of the set, empty for none.
func certificate(set clustersecret.Set, key string) string {
	object := set.Secrets().Value(key)
	if object == nil {
		return ""
	}
	data, err := sealing.Open(*set.Ring(), object)
	cert, _, ok := object.Spec.(*secret.Spec).Pair()
	if err != nil || !ok {
		return ""
	}
	return string(data[cert])
}

func pairOf(p secrettest.Pair) map[string][]byte {
	return map[string][]byte{"tls.crt": p.Cert, "tls.key": p.Key, "password": []byte("hunter2")}
}

// TestReader: secrets come, change and go; what proxies cannot use is not kept; the first source that
// has a secret counts; only the namespaces are asked for.
func TestReader(t *testing.T) {
	t.Parallel()
	east, west := newAPI(t), newAPI(t)
	one, two, three := secrettest.New(t, time.Hour, "one.example"), secrettest.New(t, time.Hour, "two.example"), secrettest.New(t, time.Hour, "three.example")
	list := one.RevocationList(t)
	east.put("shop", "door", corev1.SecretTypeTLS, pairOf(one))
	east.put("shop", "opaque", "Opaque", map[string][]byte{"cert": two.Cert, "key": two.Key, "cacert": one.Cert, "crl": list})
	east.put("shop", "door-cacert", "Opaque", map[string][]byte{"cacert": one.Cert})
	east.put("shop", "password", "Opaque", map[string][]byte{"password": []byte("hunter2")})
	east.put("other", "door", corev1.SecretTypeTLS, pairOf(one))
	west.put("shop", "door", corev1.SecretTypeTLS, pairOf(three))
	west.put("shop", "west", corev1.SecretTypeTLS, pairOf(three))
	r, await := run(t, clustersecret.Options{Sources: []clustersecret.Source{east.source(t, "east", "shop"), west.source(t, "west", "shop", "edge")}})
	await("it is synced", func(clustersecret.Set) bool { return r.HasSynced() })
	var keys []string
	for key, object := range r.Set().Secrets().All() {
		keys = append(keys, key)
		text, _ := json.Marshal(object)
		for _, bad := range []string{"hunter2", "aHVudGVyMg", string(one.Key[40:60])} {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s has %q in the clear: %s", key, bad, text)
			}
		}
	}
	if want := []string{"shop/door", "shop/door-cacert", "shop/opaque", "shop/west"}; !slices.Equal(keys, want) {
		t.Errorf("the secrets are %v, want %v", keys, want)
	}
	if certificate(r.Set(), "shop/door") != string(one.Cert) {
		t.Error("shop/door is not that of the first cluster")
	}
	if unread := r.Set().Unread(); unread.Len() != 0 {
		t.Errorf("%d namespaces are not read", unread.Len())
	}
	if earlier := r.Status()[1].Earlier; !slices.Equal(earlier, []string{"shop/door"}) {
		t.Errorf("the second cluster has %v behind the first", earlier)
	}

	// A write that changes no data changes nothing, a new pair does, and a bad one is a fault.
	before := r.Set().Secrets().Value("shop/opaque")
	east.put("shop", "opaque", "Opaque", map[string][]byte{"cert": two.Cert, "key": two.Key, "cacert": one.Cert, "crl": list, "x": nil})
	east.put("shop", "door", corev1.SecretTypeTLS, pairOf(two))
	await("the new pair is there", func(s clustersecret.Set) bool { return certificate(s, "shop/door") == string(two.Cert) })
	if r.Set().Secrets().Value("shop/opaque") != before {
		t.Error("shop/opaque has changed")
	}
	east.put("shop", "door", corev1.SecretTypeTLS, map[string][]byte{"tls.crt": one.Cert, "tls.key": two.Key})
	await("the fault is told", func(clustersecret.Set) bool { return len(r.Status()[0].Problems) == 1 })
	if p := r.Status()[0].Problems[0]; !strings.Contains(p.Message, "data.tls.key: is not the key") || p.Object != "secret/shop/door" {
		t.Errorf("the problem is %s", p)
	}
	if certificate(r.Set(), "shop/door") != string(two.Cert) {
		t.Error("the last good pair is not kept")
	}
	east.change(func() { delete(east.secrets, "shop/door") })
	await("the other cluster's counts", func(s clustersecret.Set) bool { return certificate(s, "shop/door") == string(three.Cert) })
	east.mu.Lock()
	asked := slices.Sorted(maps.Keys(east.asked))
	east.mu.Unlock()
	for _, ask := range asked {
		if !strings.HasPrefix(ask, "GET /api/v1/namespaces/shop/secrets ") || !strings.Contains(ask, "type!=kubernetes.io/service-account-token") {
			t.Errorf("it asks %s", ask)
		}
	}
}

// TestDenied: a right that the account lacks is named by namespace and does not hold up the rest;
// when it is taken away, what was read stays.
func TestDenied(t *testing.T) {
	t.Parallel()
	a, pair := newAPI(t), secrettest.New(t, time.Hour, "one.example")
	a.put("shop", "door", corev1.SecretTypeTLS, pairOf(pair))
	a.put("edge", "door", corev1.SecretTypeTLS, pairOf(pair))
	a.denied = "edge"
	r, await := run(t, clustersecret.Options{Sources: []clustersecret.Source{a.source(t, "east", "shop", "edge")}})
	await("it is synced", func(clustersecret.Set) bool { return r.HasSynced() })
	const words = " secrets in the namespace edge: grant it the verbs list and watch"
	if got := r.Set().Faults().Value("edge"); !strings.HasPrefix(got, "cluster east: the account may not ") || !strings.HasSuffix(got, words) || r.Set().Faults().Len() != 1 {
		t.Errorf("the fault is %q", got)
	}
	if err := r.Degraded(); err == nil || !strings.Contains(err.Error(), "secrets of cluster east: those of the namespaces edge were not read since this server started, gateways that have them keep them") {
		t.Errorf("Degraded says %v", err)
	}
	if unread := r.Set().Unread(); !unread.Value("edge") || unread.Len() != 1 {
		t.Errorf("%d namespaces are not read", unread.Len())
	}
	a.change(func() { a.denied = "shop" })
	await("the other is denied", func(s clustersecret.Set) bool { return s.Faults().Value("shop") != "" })
	await("the one is read", func(s clustersecret.Set) bool {
		return certificate(s, "edge/door") != "" && s.Faults().Value("edge") == ""
	})
	if certificate(r.Set(), "shop/door") == "" {
		t.Error("what was read has not stayed")
	}
	if err := r.Degraded(); r.Set().Unread().Len() != 0 || !strings.Contains(err.Error(), "secrets of cluster east: what was read of them is served: ") {
		t.Errorf("Degraded says %v", err)
	}
}

// TestAway: a cluster that is away holds up the start for the patience and no longer.
func TestAway(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	source := a.source(t, "east", "shop")
	a.Close()
	r, await := run(t, clustersecret.Options{Sources: []clustersecret.Source{source}, Patience: 20 * time.Millisecond})
	await("it is synced", func(clustersecret.Set) bool { return r.HasSynced() })
	await("the fault is told", func(s clustersecret.Set) bool {
		return strings.Contains(s.Faults().Value("shop"), "connection refused")
	})
	for _, err := range []error{r.Degraded(), r.Status()[0].Degraded} {
		if !r.Set().Unread().Value("shop") || !strings.Contains(err.Error(), "none was read since this server started, gateways that have them keep them, others do without: ") {
			t.Errorf("Degraded says %v", err)
		}
	}
}
