package remote_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/discovery/aggregate"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
	"github.com/portolan-mesh/portolan/discovery/kube/remote"
	"github.com/portolan-mesh/portolan/discovery/lastknown"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a Follower whose Secrets a test writes.
type rig struct {
	t        *testing.T
	worker   *cache.Worker
	xds      *discoverytest.Recorder
	clusters *kube.Clusters
	*remote.Follower
	key string // that seals

	mu       sync.Mutex // guards the fields below
	ring     *seal.Ring
	objects  pmap.Map[*config.Config]
	revision int64
}

func newRig(t *testing.T, flags ...string) *rig { return newRigWith(t, nil, flags...) }

// newRigWith returns a rig that has what was last known of clusters.
func newRigWith(t *testing.T, memory lastknown.Memory, flags ...string) *rig {
	ring, key := seal.Ring{}.WithNew()
	r := &rig{t: t, worker: cache.NewWorker(), xds: &discoverytest.Recorder{}, key: key, ring: &ring}
	r.clusters = kube.New(kube.Options{
		XDS: r.xds, Worker: r.worker, Configs: cache.NewFeed(cache.FeedOptions{Worker: r.worker, Schemas: schema.Pilot()}), Memory: memory,
	})
	registries := aggregate.New(aggregate.Options{XDS: r.xds, Worker: r.worker})
	r.Follower = remote.New(remote.Options{
		Configs: func() *cache.Snapshot {
			r.mu.Lock()
			defer r.mu.Unlock()
			return cache.NewSnapshot(r.revision, r.objects)
		},
		Keys: func() *seal.Ring {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.ring
		},
		Connect: cluster.New,
		Root:    "istio-system", Flags: flags, Clusters: r.clusters, Registries: registries,
	})
	r.worker.AtTaskEnd(r.Follow)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{r.worker.Run, registries.Run, r.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
	return r
}

// change changes the configuration or the keys, and has the Follower follow.
func (r *rig) change(by func()) {
	r.mu.Lock()
	by()
	r.revision++
	r.mu.Unlock()
	r.worker.Post(r, func() {})
}

// put writes a Secret that was made at a second.
func (r *rig) put(name string, second int64, label string, entries map[string]string) {
	r.t.Helper()
	namespace, short, _ := strings.Cut(name, "/")
	object := &config.Config{Meta: config.Meta{
		GroupVersionKind: schema.Secret, Namespace: namespace, Name: short, Labels: map[string]string{remote.Label: label}, CreationTimestamp: time.Unix(second, 0),
	}}
	data := map[string][]byte{}
	for name, text := range entries {
		data[name] = []byte(text)
	}
	sealed, err := sealing.With(*r.ring, r.key, object.Key(), data)
	if err != nil {
		r.t.Fatal(err)
	}
	object.Spec = &secret.Spec{Type: secret.Opaque, Sealed: sealed}
	r.change(func() { r.objects = r.objects.Set(object.Key().Path(), object) })
}

func pathOf(name string) string {
	namespace, short, _ := strings.Cut(name, "/")
	return config.Key{Kind: schema.Secret, Namespace: namespace, Name: short}.Path()
}

func (r *rig) drop(name string) {
	r.change(func() { r.objects = r.objects.Delete(pathOf(name)) })
}

func (r *rig) await(what string, holds func() bool) {
	r.t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Fatalf("it does not come true that %s", what)
		}
	}
}

// follows waits until these clusters are followed, as these Secrets say.
func (r *rig) follows(want ...string) {
	r.t.Helper()
	r.await("it follows "+strings.Join(want, ", "), func() bool {
		var got []string
		for _, of := range r.clusters.Status() {
			got = append(got, of.Cluster+" "+of.Secret)
		}
		return slices.Equal(got, want)
	})
}

// has waits until the Service web has an endpoint at each of these addresses.
func (r *rig) has(addresses ...string) {
	r.t.Helper()
	r.await("the endpoints are "+strings.Join(addresses, ", "), func() bool {
		var got []string
		for _, e := range r.xds.Rows()["shop/web.shop.svc.cluster.local"].Endpoints {
			got = append(got, e.Address)
		}
		return slices.Equal(got, addresses)
	})
}

// faults waits until these are the faults, by the Secret and the name, with a beginning of each.
func (r *rig) faults(want map[string]string) {
	r.t.Helper()
	var got pmap.Map[remote.Fault]
	r.await("the faults are as wanted", func() bool {
		got = r.Faults()
		if got.Len() != len(want) {
			return false
		}
		for key, begins := range want {
			secret, name, _ := strings.Cut(key, " ")
			if f := got.Value(remote.FaultKey(pathOf(secret), name)); begins == "" || !strings.HasPrefix(f.Reason, begins) {
				return false
			}
		}
		return true
	})
	if again := r.Faults(); again != got {
		r.t.Error("the same faults are another map")
	}
}

// newCluster returns a cluster with a Service of one pod at an address, and a kubeconfig of it.
func newCluster(t *testing.T, address string) (*kubetest.API, string) {
	a := kubetest.New(t)
	p := kubetest.NewPod("shop", "web-1", address, map[string]string{"app": "web"})
	a.Put(kubetest.NewNode("n1", "eu", "a"), p, kubetest.NewSlice("shop", "web", 8080, kubetest.EndpointOf(p)), kubetest.NewService("shop", "web", nil))
	return a, kubeconfig(t, a.URL)
}

func kubeconfig(t *testing.T, url string) string {
	text, err := os.ReadFile(kubetest.Kubeconfig(t, "any", url))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestClustersFollowTheirSecrets: clusters come, change and go with the entries of Secrets.
func TestClustersFollowTheirSecrets(t *testing.T) {
	t.Parallel()
	_, east := newCluster(t, "10.0.0.1")
	_, other := newCluster(t, "10.0.0.2")
	r := newRig(t, "flagged")
	r.put("istio-system/other", 1, "yes", map[string]string{"a": east})
	r.put("shop/elsewhere", 1, "true", map[string]string{"b": east})
	r.await("it has synced", r.HasSynced)
	r.follows()

	r.put("istio-system/one", 1, "true", map[string]string{"east": east, "flagged": east})
	r.follows("east secret/istio-system/one")
	r.has("10.0.0.1")
	r.put("istio-system/one", 1, "true", map[string]string{"east": other})
	r.has("10.0.0.2")

	// The oldest Secret with a name counts, then the name of the Secret.
	r.put("istio-system/later", 2, "true", map[string]string{"east": east})
	r.put("istio-system/also", 2, "true", map[string]string{"east": other, "north": other})
	r.follows("east secret/istio-system/one", "north secret/istio-system/also")
	r.drop("istio-system/one")
	r.follows("east secret/istio-system/also", "north secret/istio-system/also")
	r.put("istio-system/also", 2, "true", map[string]string{"north": other})
	r.follows("east secret/istio-system/later", "north secret/istio-system/also")
	r.drop("istio-system/also")
	r.follows("east secret/istio-system/later")
	r.has("10.0.0.1")
	r.put("istio-system/later", 2, "false", map[string]string{"east": east})
	r.follows()
	r.await("the rows are gone", func() bool { return len(r.xds.Rows()["shop/web.shop.svc.cluster.local"].Services) == 0 })
	r.put("istio-system/later", 2, "true", map[string]string{"east": other})
	r.has("10.0.0.2")
}

// TestOrder: whatever came first, the clusters have one order.
func TestOrder(t *testing.T) {
	t.Parallel()
	_, text := newCluster(t, "10.0.0.1")
	r := newRig(t)
	for _, name := range []string{"b", "c", "a"} {
		r.put("istio-system/"+name, 1, "true", map[string]string{name: text})
		r.await(name+" is followed", func() bool {
			return len(r.clusters.Registries()) > 0 && slices.ContainsFunc(r.clusters.Status(), func(s kube.Status) bool { return s.Cluster == name })
		})
	}
	r.follows("a secret/istio-system/a", "b secret/istio-system/b", "c secret/istio-system/c")
}

// TestFaults: what is wrong is told as long as it lasts, and what was known stays meanwhile.
func TestFaults(t *testing.T) {
	t.Parallel()
	a, east := newCluster(t, "10.0.0.1")
	r := newRig(t)
	r.put("istio-system/one", 1, "true", map[string]string{"east": east, "none": "kind: topsecret"})
	r.has("10.0.0.1")
	r.faults(map[string]string{"istio-system/one none": "kubeconfig: "})
	r.put("istio-system/one", 1, "true", map[string]string{"east": "kind: topsecret"})
	r.faults(map[string]string{"istio-system/one east": "kubeconfig: "})
	const fault = "cluster east: secret/istio-system/one: kubeconfig: is no valid kubeconfig: check its YAML and the types of its fields; the last good kubeconfig is used"
	r.await("the registry tells the fault", func() bool { return r.clusters.Status()[0].Degraded == fault })
	if of := r.clusters.Registries()[0]; of.Degraded().Error() != fault || of.SourceStatuses()[0].Problem != fault {
		t.Errorf("it is degraded by %v, and its source is %+v", of.Degraded(), of.SourceStatuses()[0])
	}
	r.has("10.0.0.1")
	if _, confirmed := r.clusters.Registries()[0].Known(); !confirmed {
		t.Error("what it follows by the last good kubeconfig is not saved")
	}
	r.put("istio-system/one", 1, "true", map[string]string{"east": east})
	r.faults(nil)
	a.GoAway(true)
	r.await("it is away", func() bool {
		return r.Faults().Value(remote.FaultKey(pathOf("istio-system/one"), "east")).Away
	})
	r.has("10.0.0.1")
	a.GoAway(false)
	r.faults(nil)

	// A server without the key that seals keeps what it follows, and cannot follow what is new.
	had := r.ring
	r.change(func() { r.ring = &seal.Ring{} })
	r.faults(map[string]string{"istio-system/one east": "open secret/istio-system/one"})
	r.await("the registry tells that", func() bool {
		return strings.HasPrefix(r.clusters.Status()[0].Degraded, "cluster east: open secret/istio-system/one: ")
	})
	r.has("10.0.0.1")
	r.change(func() { r.ring = had })
	r.faults(nil)
	r.await("nothing is wrong", func() bool { return r.clusters.Degraded() == nil })
}

// saved is what was last known, whatever the source.
type saved lastknown.Recalled

// Recall implements lastknown.Memory.
func (s saved) Recall(context.Context, string) (lastknown.Recalled, error) {
	return lastknown.Recalled(s), nil
}

// TestUnusableFromTheStart: a server that starts with a kubeconfig that cannot be used serves what was
// last known of the cluster, says why, and waits for nothing. It follows the cluster once it can.
func TestUnusableFromTheStart(t *testing.T) {
	t.Parallel()
	_, east := newCluster(t, "10.0.0.1")
	_, moved := newCluster(t, "10.0.0.2")
	r := newRig(t)
	r.put("istio-system/one", 1, "true", map[string]string{"east": east})
	r.has("10.0.0.1")
	var known lastknown.Known
	r.await("its content is confirmed", func() (ok bool) { known, ok = r.clusters.Registries()[0].Known(); return ok })
	memory := saved{Confirmed: time.Unix(3000, 0), Items: map[string][]byte{}}
	for path, item := range known.Items.All() {
		value, err := item.Value()
		if err != nil {
			t.Fatal(err)
		}
		memory.Items[path] = value
	}

	r = newRigWith(t, memory)
	r.put("istio-system/one", 1, "true", map[string]string{"east": "kind: topsecret"})
	r.has("10.0.0.1")
	const served = "cluster east: what was known of it at 1970-01-01T00:50:00Z is served: since "
	for _, c := range []struct{ kubeconfig, why string }{{"{}", "has no contexts"}, {"- topsecret", "is no valid kubeconfig"}} {
		r.put("istio-system/one", 1, "true", map[string]string{"east": c.kubeconfig})
		r.faults(map[string]string{"istio-system/one east": "kubeconfig: " + c.why})
		r.await("it is degraded, as it "+c.why, func() bool {
			err := r.clusters.Degraded()
			return err != nil && strings.HasPrefix(err.Error(), served) && strings.Contains(err.Error(), ": kubeconfig: "+c.why) && !strings.Contains(err.Error(), "topsecret")
		})
	}
	r.await("it waits for nothing", func() bool { return r.clusters.Ready() == nil })
	r.put("istio-system/one", 1, "true", map[string]string{"east": moved})
	r.has("10.0.0.2")
	r.faults(nil)
	if err := r.clusters.Degraded(); err != nil {
		t.Error(err)
	}
}

// TestRegistriesLeave: a registry that goes is in the aggregate no more.
func TestRegistriesLeave(t *testing.T) {
	t.Parallel()
	_, east := newCluster(t, "10.0.0.1")
	r := newRig(t)
	for range 3 {
		r.put("istio-system/one", 1, "true", map[string]string{"east": east})
		r.has("10.0.0.1")
		r.drop("istio-system/one")
		r.follows()
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	good := kubeconfig(t, "https://10.0.0.1")
	for _, tc := range []struct {
		name    string
		entries map[string]string
		want    string
	}{
		{name: "good", entries: map[string]string{"east": good, "west": good}},
		{name: "nothing", want: "data: has no entry"},
		{name: "empty", entries: map[string]string{"east": ""}, want: "data[east]: the label istio/multiCluster makes it the kubeconfig of a cluster: kubeconfig: is empty"},
		{name: "several", entries: map[string]string{"a": "x: [topsecret", "b": good, "c": strings.ReplaceAll(good, "https://10.0.0.1", "http://10.0.0.1")},
			want: "data[a]: the label istio/multiCluster makes it the kubeconfig of a cluster: kubeconfig: is no valid kubeconfig: check its YAML and the types of its fields; " +
				"data[c]: the label istio/multiCluster makes it the kubeconfig of a cluster: kubeconfig: server: is on another machine, and would be followed in plaintext: use https"},
	} {
		entries := map[string][]byte{}
		for name, text := range tc.entries {
			entries[name] = []byte(text)
		}
		got := ""
		if err := remote.Check(entries); err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s: %s", tc.name, cmp.Diff(tc.want, got))
		}
	}
}
