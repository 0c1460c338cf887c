package serve

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks"
	"github.com/portolan-mesh/portolan/discovery/identity/jwks/jwkstest"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestKeyFaults: a fault of an issuer's keys shows even if no token of the issuer was used,
// and only while it lasts.
func TestKeyFaults(t *testing.T) {
	t.Parallel()
	good, bad := jwkstest.New(t), jwkstest.New(t)
	bad.Answer(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusInternalServerError) })
	var objects pmap.Map[*config.Config]
	snapshot := func(name, namespace string, issuer *jwkstest.Issuer) *cache.Snapshot {
		object := &config.Config{Meta: config.Meta{GroupVersionKind: schema.TokenIssuer, Namespace: namespace, Name: name},
			Spec: &access.TokenIssuer{Issuer: issuer.URL, CA: issuer.CA, Audiences: []string{"a"}}}
		objects = objects.Set(object.Key().Path(), object)
		return cache.NewSnapshot(int64(objects.Len()), objects)
	}
	fetcher := jwks.New(jwks.Options{})
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = fetcher.Run(ctx) })
	defer func() {
		stop()
		running.Wait()
	}()
	k := &keyFaults{root: "istio-system", keys: fetcher}
	snapshot("good", "istio-system", good)
	snapshot("elsewhere", "shop", bad)
	all := snapshot("bad", "istio-system", bad)
	path := config.Key{Kind: schema.TokenIssuer, Namespace: "istio-system", Name: "bad"}.Path()
	for limit := time.Now().Add(30 * time.Second); k.faultsIn(all).Len() == 0 || good.Fetches.Load() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("nothing is known")
		}
	}
	faults := k.faultsIn(all)
	if why := faults.Value(path); faults.Len() != 1 || !strings.Contains(why, "500") {
		t.Errorf("%d faults, %q", faults.Len(), why)
	}
	if again := k.faultsIn(all); again != faults {
		t.Error("the same faults are another map")
	}
	if gone := k.faultsIn(cache.NewSnapshot(9, objects.Delete(path))); gone.Len() != 0 {
		t.Errorf("an issuer that is gone has %d faults", gone.Len())
	}
}
