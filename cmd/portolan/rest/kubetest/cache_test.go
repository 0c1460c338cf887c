package kubetest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/kube"
	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/cache/kube/selection"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/kubetest"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// running is a cache that runs until the test ends.
type running struct {
	*kube.Cache
	t *testing.T
}

func run(t *testing.T, api *kubetest.API, set ...func(*kube.Options)) running {
	t.Helper()
	c, worker := newCache(t, api, set...)
	cachetest.NewRig(t, cachetest.Subject{Cache: c, Worker: worker}).Launch()
	return running{c, t}
}

// names returns the names of the objects with their kinds.
func (r running) names() []string {
	var out []string
	for object := range r.Snapshot().Configs().Values() {
		out = append(out, object.Kind+" "+object.Name)
	}
	return out
}

func (r running) await(want ...string) {
	r.t.Helper()
	r.until(fmt.Sprint(want), func() bool { return r.Snapshot() != nil && slices.Equal(r.names(), want) })
}

func (r running) until(what string, is func() bool) {
	r.t.Helper()
	deadline, tick := time.After(10*time.Second), time.NewTicker(2*time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-deadline:
			r.t.Fatalf("never: %s; has %v, degraded %v, problems %v", what, r.names(), r.Degraded(), r.Problems())
		}
	}
}

func (r running) degraded(text string) {
	r.t.Helper()
	r.until("degraded by "+text, func() bool {
		err := r.Degraded()
		return text == "" && err == nil || text != "" && err != nil && strings.Contains(err.Error(), text)
	})
}

func writeRule(t *testing.T, api *kubetest.API, name string) {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"networking.istio.io/v1","kind":"DestinationRule","metadata":{"name":%q,"namespace":"shop"},"spec":{"host":"a.example"}}`, name)
	if got := api.Do(t, "POST", "/apis/networking.istio.io/v1/namespaces/shop/destinationrules", body); got.Code != http.StatusCreated {
		t.Fatal(got)
	}
}

func entry(name string) *config.Config {
	object := cachetest.ServiceEntry("shop", name, 1)
	if err := kube.Stamp(object); err != nil {
		panic(err)
	}
	return object
}

// A server that starts while the cluster is away serves what that last had.
func TestCacheRecalls(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	writeRule(t, api, "here")
	api.Down()
	var tries atomic.Int32
	release := make(chan struct{})
	r := run(t, api, func(o *kube.Options) {
		o.Recall = func(context.Context) ([]*config.Config, time.Time, error) {
			if tries.Add(1) == 1 {
				return nil, time.Time{}, http.ErrServerClosed // the store is away, too
			}
			<-release
			return []*config.Config{entry("gone"), entry("stays")}, time.Unix(3000, 0), nil
		}
	})
	r.until("what the cluster last had is on the way", func() bool { return tries.Load() > 1 && r.Reading() })
	close(release)
	r.await("ServiceEntry gone", "ServiceEntry stays")
	r.until("nothing is on the way", func() bool { return !r.Reading() })
	r.degraded("connection refused")
	if err := r.Degraded(); !strings.HasPrefix(err.Error(), "what was known of it at 1970-01-01T00:50:00Z is served: ") || r.Confirmed() {
		t.Fatalf("without an answer it is confirmed (%t), and says %v", r.Confirmed(), err)
	}
	write(t, api, "stays", "a.example")
	api.Up(t)
	r.await("DestinationRule here", "ServiceEntry stays")
	r.until("confirmed", r.Confirmed)
	r.degraded("")
	api.Down()
	r.degraded("connection refused")
	if err := r.Degraded(); strings.Contains(err.Error(), "what was known") {
		t.Errorf("once it was read it says %v", err)
	}
	if place := r.Place(config.Key{Kind: schema.ServiceEntry, Namespace: "shop", Name: "stays"}); place != "kubectl get -n shop serviceentries.networking.istio.io stays" {
		t.Fatal(place)
	}
	if place := kube.PlaceOf(config.Key{Name: "istio"}, "ingressclasses.networking.k8s.io"); place != "kubectl get ingressclasses.networking.k8s.io istio" {
		t.Fatal(place)
	}
}

// What a cluster told before it went away stays confirmed, as of then.
func TestCacheConfirmedOnceAway(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	for _, name := range []string{"shop", "other"} {
		namespace(t, api, name)
	}
	selectors := selection.NewSelectors()
	named(t, selectors, "shop")
	o := options(api)
	o.Selectors = selectors
	connection, err := cluster.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, api, func(o *kube.Options) { o.Cluster = connection })
	lost := func() (objects, namespaces time.Time) {
		all, since, told := connection.Namespaces()
		if !r.Confirmed() || !told || all.Len() != 2 {
			t.Errorf("confirmed %t, %d namespaces %t", r.Confirmed(), all.Len(), told)
		}
		return r.LostSince(), since
	}
	r.until("confirmed", r.Confirmed)
	write(t, api, "one", "a.example")
	r.await("ServiceEntry one")
	r.until("all is followed", func() bool { objects, namespaces := lost(); return objects.IsZero() && namespaces.IsZero() })
	began := time.Now()
	api.Down()
	r.until("all is lost", func() bool { objects, namespaces := lost(); return !objects.IsZero() && !namespaces.IsZero() })
	objects, namespaces := lost()
	for _, since := range []time.Duration{objects.Sub(began), namespaces.Sub(began)} {
		if since < 0 || since > time.Minute {
			t.Errorf("it is lost %s after it went", since)
		}
	}
	r.await("ServiceEntry one")
	api.Up(t)
	r.until("all is followed again", func() bool { objects, namespaces := lost(); return objects.IsZero() && namespaces.IsZero() })
}

// A cluster that had nothing has nothing while it is away. One of which nothing was saved is not known.
func TestCacheRecallsNothing(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	api.Down()
	recall := func(known time.Time) running {
		return run(t, api, func(o *kube.Options) {
			o.Recall = func(context.Context) ([]*config.Config, time.Time, error) { return nil, known, nil }
		})
	}
	recall(time.Unix(3000, 0)).await()
	unknown := recall(time.Time{})
	unknown.degraded("connection refused")
	if unknown.Snapshot() != nil {
		t.Error("content that nobody knows is served")
	}
	api.Up(t)
	unknown.await()
}

// A cluster that refuses at once, or does not list its kinds yet, takes nothing from what it last had,
// however long that takes to be read.
func TestCacheRecallsBeforeItFollows(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"may not list and watch": func(w http.ResponseWriter, r *http.Request) bool {
			denied := !strings.HasPrefix(r.URL.Path, "/apis/") || strings.Count(r.URL.Path, "/") > 3
			if denied && r.URL.Path != "/apis" {
				kubetest.Refuse(w, http.StatusForbidden, "Forbidden", "no")
				return true
			}
			return false
		},
		"does not list all kinds yet that it has: the last known objects of ServiceEntry are served": noGroups(new(atomic.Int32)),
	} {
		api := kubetest.Start(t)
		write(t, api, "new", "a.example")
		api.Harm(harm)
		api.Calls()
		r := run(t, api, func(o *kube.Options) {
			o.Recall = func(context.Context) ([]*config.Config, time.Time, error) {
				<-time.After(50 * time.Millisecond) // which is longer than a refusal takes
				if calls := api.Calls(); len(calls) > 0 {
					t.Errorf("asked %v before what it last had was read", calls)
				}
				return []*config.Config{entry("known")}, time.Unix(3000, 0), nil
			}
		})
		r.degraded(name)
		r.await("ServiceEntry known")
		if r.Confirmed() {
			t.Error("confirmed, so that what was saved would be overwritten:", name)
		}
		api.Harm(nil)
		r.await("ServiceEntry new")
		r.until("confirmed", r.Confirmed)
	}
}

// noGroups answers as an API server that has not begun to serve its kinds. It counts the answers.
func noGroups(asked *atomic.Int32) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/apis" {
			return false
		}
		asked.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`))
		return true
	}
}

// A cluster that has answered is being read until its last kind is there, or cannot be read.
func TestCacheIsReading(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	write(t, api, "here", "a.example")
	release := make(chan bool)
	api.Harm(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/serviceentries") {
			return false
		}
		select {
		case _, waits := <-release:
			if waits {
				kubetest.Refuse(w, http.StatusInternalServerError, "InternalError", "no")
			}
			return waits
		case <-r.Context().Done():
			return true
		}
	})
	r := run(t, api)
	r.until("the cluster is being read", r.Reading)
	select {
	case release <- true: // the list, or what follows it, fails
	case <-t.Context().Done():
	}
	r.until("one kind cannot be read", func() bool { return !r.Reading() })
	close(release)
	r.await("ServiceEntry here")
	if r.Reading() {
		t.Error("the cluster is being read although everything is there")
	}
}

// Without a right to one kind the others are served, and what is known of that one stays.
func TestCacheWithoutARight(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	writeRule(t, api, "here")
	write(t, api, "new", "a.example")
	deny := func(kinds ...string) {
		api.Harm(func(w http.ResponseWriter, r *http.Request) bool {
			denied := slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasSuffix(r.URL.Path, "/"+kind) })
			if denied {
				kubetest.Refuse(w, http.StatusForbidden, "Forbidden", `things are forbidden: User "system:serviceaccount:mesh:\"portolan\"" cannot `+kubetest.Verb(r))
			}
			return denied
		})
	}
	deny("serviceentries")
	r := run(t, api, func(o *kube.Options) {
		o.Cluster = o.Cluster.Share(cluster.User{Source: "kube://test", Page: "docs/rights.md"})
		o.Recall = func(context.Context) ([]*config.Config, time.Time, error) {
			return []*config.Config{entry("known")}, time.Unix(3000, 0), nil
		}
	})
	r.await("DestinationRule here", "ServiceEntry known")
	const account = `the account system:serviceaccount:mesh:"portolan" may not list and watch `
	const see = ": see docs/rights.md or portolan source describe kube://test"
	r.degraded(account + "serviceentries.networking.istio.io in all namespaces" + see)
	deny("serviceentries", "sidecars", "telemetries")
	api.Cut(t)
	r.degraded(account + "3 resources: serviceentries.networking.istio.io, sidecars.networking.istio.io, ..." + see)
	r.until("each right is said", func() bool {
		details := cluster.Details(r.Degraded())
		ok := len(details) == 3
		for i, kind := range []string{"serviceentries.networking", "sidecars.networking", "telemetries.telemetry"} {
			ok = ok && strings.HasSuffix(details[i], account+kind+".istio.io in all namespaces: grant it the verbs list and watch (see docs/rights.md)")
		}
		return ok
	})
	api.Harm(nil)
	r.await("DestinationRule here", "ServiceEntry new")
	r.degraded("")
}

// A kind whose definition appears and goes is followed, in the newest version.
func TestCacheFollowsDefinitions(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	writeRule(t, api, "here")
	write(t, api, "one", "a.example")
	hidden := func(hide string) {
		api.Harm(func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path+"/", hide) {
				kubetest.Refuse(w, http.StatusNotFound, "NotFound", "no")
				return true
			}
			return false
		})
	}
	hidden("networking.istio.io/v1")
	r := run(t, api)
	r.await()
	r.degraded("")
	hidden("networking.istio.io/v1/") // v1beta1 is there
	r.await("DestinationRule here", "ServiceEntry one")
	r.until("it is followed in v1beta1", func() bool {
		return slices.Contains(api.Calls(), "watch /apis/networking.istio.io/v1beta1/serviceentries")
	})
	if got := r.Problems(); len(got) > 0 {
		t.Errorf("problems of a cluster with all its kinds: %v", got)
	}
	api.Harm(nil)
	r.until("it is followed in v1", func() bool {
		return slices.Contains(api.Calls(), "watch /apis/networking.istio.io/v1/serviceentries")
	})
	r.await("DestinationRule here", "ServiceEntry one")
	hidden("networking.istio.io/v1") // all are gone, so watches end
	api.Cut(t)
	r.await()
	const gone = "cluster test: the cluster no longer has the kind ServiceEntry (serviceentries.networking.istio.io): its objects are gone with its definition"
	r.until("the problems name the kind", func() bool {
		return slices.ContainsFunc(r.Problems(), func(p cache.Problem) bool { return p.String() == gone && p.Warning })
	})
	api.Harm(nil)
	r.await("DestinationRule here", "ServiceEntry one")
	r.degraded("")
	r.until("nothing is gone", func() bool { return len(r.Problems()) == 0 })
}

// A server that answers for a while as if it had no kinds takes nothing away.
func TestCacheKeepsWhatAStartingServerLeavesOut(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	write(t, api, "one", "a.example")
	r := run(t, api)
	r.await("ServiceEntry one")
	var asked atomic.Int32
	api.Harm(noGroups(&asked))
	r.until("asked again", func() bool { return asked.Load() > 2 })
	r.await("ServiceEntry one")
	r.degraded("")
}

// An account that may not ask what a cluster serves is told which role gives the right.
func TestCacheWithoutDiscovery(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	api.Harm(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/apis" {
			return false
		}
		kubetest.Refuse(w, http.StatusForbidden, "Forbidden", `forbidden: User "follower" cannot get path "/apis"`)
		return true
	})
	write(t, api, "here", "a.example")
	r := run(t, api)
	r.until("it is said", func() bool {
		err := r.Degraded()
		return err != nil && strings.Contains(err.Error(), "the account follower may not get /apis, where the cluster lists its resources: the ClusterRole system:discovery gives the right") &&
			!strings.Contains(err.Error(), "the verb") && errors.Is(err, cluster.ErrDenied)
	})
	api.Harm(nil)
	r.await("ServiceEntry here")
}

// The problem of an object names it once.
func TestCacheNamesAFaultyObjectOnce(t *testing.T) {
	t.Parallel()
	api := kubetest.Start(t)
	api.Harm(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case !strings.HasSuffix(r.URL.Path, "/v1/virtualservices"):
			return false
		case r.URL.Query().Get("sendInitialEvents") != "":
			kubetest.Refuse(w, http.StatusUnprocessableEntity, "Invalid", "no")
		case kubetest.Verb(r) == "watch":
			return kubetest.Hang(w, r)
		default:
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"kind": "VirtualServiceList", "apiVersion": "networking.istio.io/v1", "metadata": {"resourceVersion": "1"}, "items": [
				{"apiVersion": "networking.istio.io/v1", "kind": "VirtualService", "metadata": {"name": "bad", "namespace": "shop", "resourceVersion": "1"}, "spec": {"hosts": 7, "rout": []}}]}`)
		}
		return true
	})
	r := run(t, api)
	r.until("there is a problem", func() bool { return len(r.Problems()) == 1 })
	const name = "virtualservice/shop/bad: "
	if text := r.Problems()[0].String(); !strings.HasPrefix(text, "cluster test: "+name+"spec.") || strings.Count(text, name) != 1 || !strings.Contains(text, "spec.rout") {
		t.Error(text)
	}
}
