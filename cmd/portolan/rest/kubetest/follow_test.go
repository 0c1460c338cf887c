package kubetest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/kubetest"
)

var entries = schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "serviceentries"}

// follower follows the entries of an API, by what hosts they have.
type follower struct {
	cluster *cluster.Cluster

	mu     sync.Mutex
	has    map[string]string
	listed int
	tell   chan struct{}
	faults []string
}

// hosts converts an entry to its first host. It refuses the host "refused.example".
func hosts(o cluster.Object) (string, error) {
	all, _, err := unstructured.NestedStringSlice(o.(*unstructured.Unstructured).Object, "spec", "hosts")
	switch {
	case err != nil:
		return "", err
	case len(all) == 0 || all[0] == "refused.example":
		return "", errors.New("spec.hosts[0]: is refused")
	}
	return all[0], nil
}

func options(api *kubetest.API) cluster.Options {
	return cluster.Options{File: api.Kubeconfig, RetryMin: time.Millisecond, RetryMax: 20 * time.Millisecond, Timeout: 10 * time.Second}
}

// follow follows the entries until the test ends.
func follow(t *testing.T, o cluster.Options) *follower {
	t.Helper()
	c, err := cluster.New(o)
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{cluster: c, has: map[string]string{}, tell: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		err := cluster.Follow(ctx, c, cluster.Following[string]{Resource: entries, Kind: "ServiceEntry", Convert: hosts, Handle: f.handle})
		if err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return f
}

func (f *follower) handle(b cluster.Batch[string]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b.Listed {
		f.listed++
	} else if len(b.Changes) != 1 {
		f.faults = append(f.faults, fmt.Sprintf("%d changes in a batch without a list", len(b.Changes)))
	}
	for _, change := range b.Changes {
		name := change.Name.String()
		was, had := f.has[name]
		if had != change.HadOld || was != change.Old || !change.HadOld && !change.HasNew {
			f.faults = append(f.faults, fmt.Sprintf("%s was %q (%t), not %q (%t)", name, was, had, change.Old, change.HadOld))
		}
		if change.HasNew {
			f.has[name] = change.New
		} else {
			delete(f.has, name)
		}
	}
	select {
	case f.tell <- struct{}{}:
	default:
	}
}

// await waits until the entries are those of want, as "name=host" in order.
func (f *follower) await(t *testing.T, want ...string) {
	t.Helper()
	f.until(t, fmt.Sprint(want), func() bool { return slices.Equal(f.entries(), want) })
}

func (f *follower) entries() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f.has)) {
		out = append(out, strings.TrimPrefix(name, "shop/")+"="+f.has[name])
	}
	return out
}

// until waits for a condition.
func (f *follower) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.After(10 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-f.tell:
		case <-tick.C:
		case <-deadline:
			t.Fatalf("never: %s; has %v, degraded %v, problems %v", what, f.entries(), f.cluster.Degraded(), f.cluster.Problems())
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.faults) > 0 {
		t.Fatal(f.faults)
	}
}

func (f *follower) degraded(t *testing.T, text string) {
	t.Helper()
	f.until(t, "degraded by "+text, func() bool {
		err := f.cluster.Degraded()
		return text == "" && err == nil || text != "" && err != nil && strings.Contains(err.Error(), text)
	})
}

func write(t *testing.T, api *kubetest.API, name, host string) {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"ServiceEntry","metadata":{"name":%q,"namespace":"shop"},"spec":{"hosts":[%q],"ports":[{"number":80,"name":"http","protocol":"HTTP"}],"resolution":"NONE","location":"MESH_EXTERNAL","addresses":["10.0.0.1"]}}`, name, host)
	path := "/apis/networking.istio.io/v1/namespaces/shop/serviceentries"
	if got := api.Do(t, "POST", path, body); got.Code != http.StatusConflict {
		if got.Code != http.StatusCreated {
			t.Fatal(got)
		}
		return
	}
	if got := api.Do(t, "PATCH", path+"/"+name, fmt.Sprintf(`{"spec":{"hosts":[%q]}}`, host), func(r *http.Request) {
		r.Header.Set("Content-Type", "application/merge-patch+json")
	}); got.Code != http.StatusOK {
		t.Fatal(got)
	}
}

func remove(t *testing.T, api *kubetest.API, name string) {
	t.Helper()
	if got := api.Do(t, "DELETE", "/apis/networking.istio.io/v1/namespaces/shop/serviceentries/"+name, ""); got.Code != http.StatusOK {
		t.Fatal(got)
	}
}

func TestFollow(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	write(t, api, "a", "a.example")
	f := follow(t, options(api))
	f.await(t, "a=a.example")
	write(t, api, "b", "b.example")
	f.await(t, "a=a.example", "b=b.example")
	write(t, api, "a", "new.example")
	f.await(t, "a=new.example", "b=b.example")
	remove(t, api, "a")
	f.await(t, "b=b.example")
	f.degraded(t, "")
	if f.listed != 1 {
		t.Fatalf("%d lists", f.listed)
	}
	want := []cluster.Status{{Resource: "serviceentries.networking.istio.io", Objects: 1, Listed: true}}
	if diff := cmp.Diff(want, f.cluster.Status()); diff != "" {
		t.Fatal(diff)
	}
}

// What is written while the server is away comes as one difference.
func TestFollowServerAway(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	api.Down()
	f := follow(t, options(api))
	f.degraded(t, "connection refused")
	if f.cluster.Synced() || f.cluster.Status()[0].Listed {
		t.Fatal("synced without an answer")
	}
	write(t, api, "a", "a.example")
	write(t, api, "b", "b.example")
	api.Up(t)
	f.await(t, "a=a.example", "b=b.example")
	f.degraded(t, "")
	api.Down()
	f.degraded(t, "connection refused")
	f.await(t, "a=a.example", "b=b.example")
	remove(t, api, "a")
	write(t, api, "b", "new.example")
	write(t, api, "c", "c.example")
	api.Up(t)
	f.await(t, "b=new.example", "c=c.example")
	f.degraded(t, "")
}

func TestFollowHangingServer(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	write(t, api, "a", "a.example")
	o := options(api)
	o.Timeout = 50 * time.Millisecond
	f := follow(t, o)
	f.await(t, "a=a.example")
	api.Harm(kubetest.Hang)
	api.Cut(t)
	f.degraded(t, "no answer within 50ms")
	write(t, api, "b", "b.example")
	f.await(t, "a=a.example")
	api.Harm(nil)
	f.await(t, "a=a.example", "b=b.example")
	f.degraded(t, "")
}

// A watch that expired ends in a list, whose difference is delivered.
func TestFollowExpiredWatch(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	write(t, api, "a", "a.example")
	write(t, api, "b", "b.example")
	f := follow(t, options(api))
	f.await(t, "a=a.example", "b=b.example")
	var gone sync.Once
	api.Harm(func(w http.ResponseWriter, r *http.Request) (answered bool) {
		if kubetest.Verb(r) == "watch" && r.URL.Query().Get("sendInitialEvents") == "" {
			gone.Do(func() {
				answered = true
				kubetest.Refuse(w, http.StatusGone, "Expired", "too old resource version")
			})
		}
		return answered
	})
	api.Down()
	remove(t, api, "a")
	write(t, api, "c", "c.example")
	api.Up(t)
	f.await(t, "b=b.example", "c=c.example")
	f.degraded(t, "")
}

// A resource whose watch is of no use any more is not followed until the next one, also while no list is answered.
func TestFollowToldOfLostWatch(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ answer, want string }{
		"expired": {
			`{"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}}` + "\n",
			"the cluster no longer tells all changes of serviceentries.networking.istio.io since the last one: a list follows",
		},
		"short": {"", "the cluster ends watches at once"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := kubetest.Start(t)
			write(t, api, "a", "a.example")
			f := follow(t, options(api))
			f.await(t, "a=a.example")
			write(t, api, "b", "b.example")
			f.await(t, "a=a.example", "b=b.example")
			api.Harm(func(w http.ResponseWriter, r *http.Request) bool {
				if kubetest.Verb(r) != "watch" || r.URL.Query().Get("sendInitialEvents") != "" {
					return kubetest.Hang(w, r)
				}
				w.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(w, test.answer)
				return true
			})
			api.Cut(t)
			f.degraded(t, test.want)
			write(t, api, "c", "c.example")
			f.await(t, "a=a.example", "b=b.example")
			api.Harm(nil)
			api.Cut(t)
			f.await(t, "a=a.example", "b=b.example", "c=c.example")
			f.degraded(t, "")
		})
	}
}

func TestFollowRights(t *testing.T) {
	t.Parallel()
	for verb, denied := range map[string]string{"get": "list and watch", "watch": "watch"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			api := kubetest.Start(t)
			write(t, api, "a", "a.example")
			f := follow(t, options(api))
			f.await(t, "a=a.example")
			api.Harm(func(w http.ResponseWriter, r *http.Request) bool {
				if verb == "get" || kubetest.Verb(r) == verb {
					kubetest.Refuse(w, http.StatusForbidden, "Forbidden", "no")
					return true
				}
				return false
			})
			api.Cut(t)
			f.degraded(t, "the account may not "+denied+" serviceentries.networking.istio.io in all namespaces")
			api.Harm(nil)
			f.degraded(t, "")
			remove(t, api, "a")
			f.await(t)
		})
	}
}

// A token that the file has anew is used, and is in no message.
func TestFollowRotatedToken(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	f := follow(t, options(api))
	f.degraded(t, "")
	api.Demand("another-secret")
	api.Cut(t)
	f.degraded(t, "does not accept the credentials")
	if text := f.cluster.Degraded().Error(); strings.Contains(text, "secret") {
		t.Fatal(text)
	}
	write(t, api, "a", "a.example")
	api.WriteKubeconfig(t, "another-secret")
	f.await(t, "a=a.example")
	f.degraded(t, "")
}

func TestFollowRefusedObject(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	write(t, api, "a", "a.example")
	write(t, api, "b", "refused.example")
	f := follow(t, options(api))
	f.await(t, "a=a.example")
	problems := func(want ...string) func() bool {
		return func() bool {
			var got []string
			for _, p := range f.cluster.Problems() {
				got = append(got, fmt.Sprintf("%s kept=%t", p, p.Serving))
			}
			return slices.Equal(got, want)
		}
	}
	const b = "cluster test: serviceentry/shop/b: spec.hosts[0]: is refused kept="
	f.until(t, "b refused", problems(b+"false"))
	write(t, api, "b", "b.example")
	f.await(t, "a=a.example", "b=b.example")
	f.until(t, "b accepted", problems())
	write(t, api, "b", "refused.example")
	f.until(t, "b refused again", problems(b+"true"))
	f.await(t, "a=a.example", "b=b.example")
	api.Down()
	remove(t, api, "b")
	api.Up(t)
	f.await(t, "a=a.example")
	f.until(t, "b gone", problems())
}

func TestFollowTyped(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	for _, name := range []string{"a", "b"} {
		body := fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q,"labels":{"mesh":%q}}}`, name, name)
		if got := api.Do(t, "POST", "/api/v1/namespaces", body); got.Code != http.StatusCreated {
			t.Fatal(got)
		}
	}
	c, err := cluster.New(options(api))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	err = cluster.Follow(ctx, c, cluster.Following[*corev1.Namespace]{
		Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace", Labels: "mesh=b",
		Convert: func(o cluster.Object) (*corev1.Namespace, error) { return o.(*corev1.Namespace), nil },
		Handle: func(b cluster.Batch[*corev1.Namespace]) {
			for _, change := range b.Changes {
				got = append(got, change.New.Labels["mesh"])
			}
			cancel()
		},
	})
	if err != nil || !slices.Equal(got, []string{"b"}) {
		t.Fatal(got, err)
	}
	if status := c.Status(); len(status) != 0 {
		t.Fatalf("followed after the end: %v", status)
	}
}

func TestFollowSelectorFault(t *testing.T) {
	t.Parallel()
	c, err := cluster.New(cluster.Options{File: kubetest.Start(t).Kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	err = cluster.Follow(t.Context(), c, cluster.Following[metav1.Object]{Resource: entries, Labels: "a=(b"})
	if err == nil || !strings.HasPrefix(err.Error(), "follow serviceentries: labels: ") {
		t.Fatal(err)
	}
}
