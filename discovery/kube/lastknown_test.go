package kube_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache/kube/cluster"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
	"github.com/portolan-mesh/portolan/discovery/lastknown"
)

// saved is what a registry had, as another server recalls it.
type saved struct {
	mu    sync.Mutex // guards fails
	fails int
	of    lastknown.Recalled
}

// Recall implements lastknown.Memory.
func (s *saved) Recall(context.Context, string) (lastknown.Recalled, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails--; s.fails >= 0 {
		return lastknown.Recalled{}, errors.New("the store is away")
	}
	return s.of, nil
}

// saved follows a cluster until all of it is known, and returns that as it is saved, with objects that
// nobody can read. The first attempt to read it fails.
func (r *rig) saved(a *kubetest.API) *saved {
	r.t.Helper()
	one, stop := r.follow(a, "east")
	defer stop()
	var known lastknown.Known
	r.await("its content is confirmed", func() (ok bool) { known, ok = one.Known(); return ok })
	memory := &saved{fails: 1, of: lastknown.Recalled{Confirmed: time.Unix(3000, 0), Items: map[string][]byte{"other/a": []byte("{}"), "pod/a": []byte("{")}}}
	for path, item := range known.Items.All() {
		value, err := item.Value()
		if err != nil {
			r.t.Fatal(err)
		}
		memory.of.Items[path] = value
	}
	return memory
}

// TestSilentCluster: a server that starts while a cluster takes connections and says nothing serves
// what was last known within 2 s.
func TestSilentCluster(t *testing.T) {
	t.Parallel()
	a, _, _, _ := shop(t)
	memory := newRig(t, kube.Options{}).saved(a)
	silent, err := net.Listen("tcp", "127.0.0.1:0") // its queue takes connections, and nobody answers
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	connection, err := cluster.New(cluster.Options{File: kubetest.Kubeconfig(t, "east", "http://"+silent.Addr().String())})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, kube.Options{Memory: memory})
	one, began := r.clusters.Registry(connection), time.Now()
	r.background(one.Run)
	r.await("it is synced", one.HasSynced)
	took := time.Since(began)
	t.Logf("synced after %v", took)
	if took > kube.DefaultFirstPatience/2 {
		t.Errorf("it took %v", took)
	}
	r.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")
}

// TestDenied: nobody waits for a cluster in which the account has no rights.
func TestDenied(t *testing.T) {
	t.Parallel()
	denies := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`)
	}))
	t.Cleanup(denies.Close)
	connection, err := cluster.New(cluster.Options{File: kubetest.Kubeconfig(t, "east", denies.URL)})
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, kube.Options{FirstPatience: time.Hour})
	one := r.clusters.Registry(connection)
	r.background(one.Run)
	r.await("it is synced", one.HasSynced)
}

// TestLastKnown: a server that starts while a cluster is away serves what was last known, and what
// the cluster has once it is back.
func TestLastKnown(t *testing.T) {
	t.Parallel()
	a, p1, p2, slice := shop(t)
	first := newRig(t, kube.Options{})
	memory := first.saved(a)
	a.GoAway(true)
	second := newRig(t, kube.Options{Memory: memory, Patience: time.Millisecond})
	again, _ := second.follow(a, "east")
	second.has("http=10.0.0.1:8080", "http=10.0.0.2:8080")
	expect(t, second.xds.Rows(), first.xds.Rows())
	if s := again.SourceStatuses()[0]; s.State != discovery.SourceLastKnown || !s.AsOf.Equal(memory.of.Confirmed) {
		t.Errorf("its status is %+v", s)
	}
	if _, ok := again.Known(); ok {
		t.Error("what the cluster has not confirmed would be saved")
	}
	slice.Endpoints = slice.Endpoints[1:]
	a.Put(slice)
	a.Drop(p1, p2)
	a.Put(p2)
	a.GoAway(false)
	second.has("http=10.0.0.2:8080")
	second.await("it is live", func() bool { return again.SourceStatuses()[0].State == discovery.SourceLive })
	expect(t, second.clusters.Status()[0].Pods, 1)
}

// TestKnownOnceAway: what a cluster told before it went away can be saved after that, as of then.
func TestKnownOnceAway(t *testing.T) {
	t.Parallel()
	a, _, _, slice := shop(t)
	r := newRig(t, kube.Options{})
	one, _ := r.follow(a, "east")
	slice.Endpoints = slice.Endpoints[1:]
	a.Put(slice)
	r.has("http=10.0.0.2:8080")
	r.await("it is followed", func() bool { known, ok := one.Known(); return ok && known.Until.IsZero() })
	began := time.Now()
	a.GoAway(true)
	var known lastknown.Known
	r.await("it is known until now", func() (ok bool) {
		known, ok = one.Known()
		return ok && !known.Until.IsZero()
	})
	if since := known.Until.Sub(began); since < 0 || since > time.Minute {
		t.Errorf("it is known until %s after it went", since)
	}
	value, err := known.Items.Value("slice/shop/web/web-abc").Value()
	if err != nil || !strings.Contains(string(value), "10.0.0.2") || strings.Contains(string(value), "10.0.0.1") {
		t.Errorf("known is %s, %v", value, err)
	}
	a.GoAway(false)
	r.await("it is followed again", func() bool { known, ok := one.Known(); return ok && known.Until.IsZero() })
}

// TestNothingKnown: a server does not wait longer than its patience for a cluster of which nothing
// is known.
func TestNothingKnown(t *testing.T) {
	t.Parallel()
	a := kubetest.New(t)
	a.GoAway(true)
	r := newRig(t, kube.Options{FirstPatience: time.Millisecond})
	one, _ := r.follow(a, "east")
	expect(t, one.SourceStatuses()[0].State, discovery.SourceSyncing)
	if one.Degraded() == nil || one.Ready() != nil {
		t.Errorf("ready %v, degraded %v", one.Ready(), one.Degraded())
	}
}
