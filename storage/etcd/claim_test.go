package etcd_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// TestSourcesOwnAddresses: a host of a source gets the address that a host of the store
// would, once, however many claim it and however often; it stays as long as it has an
// owner.
func TestSourcesOwnAddresses(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	one, two := open(t, client, giving), open(t, client, giving)
	key, dir, other := address.Key{Namespace: "shop", Host: "db.example"}, address.OwnerOf("/etc/mesh"), address.OwnerOf("/srv")
	owners := func(want ...string) {
		t.Helper()
		got, err := one.AddressOwners(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got[key]); d != "" {
			t.Errorf("owners (-want +got):\n%s", d)
		}
	}
	claim := func(add, drop []string) {
		t.Helper()
		if without, err := two.ClaimAddresses(t.Context(), []address.Claim{{Key: key, Add: add, Drop: drop}}); err != nil || len(without) > 0 {
			t.Fatal(without, err)
		}
	}
	claim([]string{dir}, nil)
	owners(dir)
	given := assigned(t, client)[0]
	before := two.Version()
	claim([]string{dir}, nil)
	if after := two.Version(); after != before {
		t.Errorf("a claim that holds was written at %s, after %s", after, before)
	}
	create(t, one, static("entry", key.Host))
	claim([]string{other}, nil)
	owners("entry", dir, other)

	// The leader's SettleAddresses leaves sources alone.
	all, err := one.AddressOwners(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if doubts := address.Doubts(slices.Values([]*config.Config{static("entry", key.Host)}), all); len(doubts) != 0 {
		t.Errorf("doubts: %v", doubts)
	}
	if _, err := one.Delete(t.Context(), schema.ServiceEntry, "entry", "shop", ""); err != nil {
		t.Fatal(err)
	}
	owners(dir, other)
	claim(nil, []string{other})
	if got := assigned(t, client); len(got) != 1 || got[0].IPv4 != given.IPv4 {
		t.Errorf("the host has %v, and was given %s", got, given.IPv4)
	}
	claim(nil, []string{dir})
	owners()
	if got := assigned(t, client); len(got) != 0 {
		t.Errorf("nobody owns %v", got)
	}
	claim([]string{dir}, nil)
	if got := assigned(t, client); len(got) != 1 || got[0].IPv4 != given.IPv4 {
		t.Errorf("the host came back with %v, and had %s", got, given.IPv4)
	}
}

// TestManyClaimAtOnce: more hosts than a transaction takes, by several servers.
func TestManyClaimAtOnce(t *testing.T) {
	t.Parallel()
	client := etcdtest.Start(t)
	var claims []address.Claim
	for i := range 100 {
		claims = append(claims, address.Claim{Key: address.Key{Namespace: "shop", Host: fmt.Sprintf("h%02d.example", i)}, Add: []string{address.OwnerOf("dir")}})
	}
	var servers sync.WaitGroup
	for range 3 {
		store := open(t, client, giving)
		servers.Go(func() {
			if without, err := store.ClaimAddresses(t.Context(), claims); err != nil || len(without) > 0 {
				t.Error(len(without), err)
			}
		})
	}
	servers.Wait()
	if n := len(assigned(t, client)); n != 100 {
		t.Errorf("%d hosts have addresses", n)
	}
}
