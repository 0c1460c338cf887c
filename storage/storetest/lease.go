package storetest

import (
	"errors"
	"strconv"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// leaseLimit is how late a lease may end, on a machine that is busy with other tests.
const leaseLimit = 30 * time.Second

var leaseTests = []test{
	{"a TTL is three seconds at least and ten minutes at most", func(f *fixture) {
		for _, ttl := range []time.Duration{-1, 1, storage.MinLease - 1, storage.MaxLease + 1} {
			if id, err := f.leaser().Grant(f.Context(), ttl); !errors.Is(err, storage.ErrInvalid) {
				f.Errorf("grant %v: %v, %v", ttl, id, err)
			}
		}
		for _, ttl := range []time.Duration{0, storage.MinLease, storage.MaxLease} {
			f.end(f.grant(ttl))
		}
	}},
	{"an object goes when its lease ends by time, and not before", func(f *fixture) {
		began := time.Now()
		f.under(machine("a"), f.grant(storage.MinLease))
		f.awaitGone(machine("a"))
		if took := time.Since(began); took < storage.MinLease {
			f.Errorf("the object was gone after %v", took)
		}
	}},
	{"a lease that is renewed does not end", func(f *fixture) {
		lease := f.grant(storage.MinLease)
		f.under(machine("a"), lease)
		for began := time.Now(); time.Since(began) < storage.MinLease*3/2; time.Sleep(storage.MinLease / 20) {
			if err := f.leaser().Renew(f.Context(), lease); err != nil {
				f.Fatal(err)
			}
			f.get(machine("a"))
		}
		f.awaitGone(machine("a"))
		if err := f.leaser().Renew(f.Context(), lease); !errors.Is(err, storage.ErrNotFound) {
			f.Errorf("renew a lease that has ended: %v", err)
		}
	}},
	{"the objects of a lease that is ended go as one revision", func(f *fixture) {
		lease := f.grant(0)
		f.create(machine("other"))
		f.under(machine("a"), lease)
		f.under(machine("b"), lease)
		before := f.version()
		f.end(lease)
		if left := f.list(schema.WorkloadEntry, ""); len(left) != 1 || left[0] != "shop/other" {
			f.Errorf("left are %v", left)
		}
		if after := f.version(); parse(f.T, after) != parse(f.T, before)+1 {
			f.Errorf("the version went from %s to %s", before, after)
		}
		if err := f.leaser().Revoke(f.Context(), lease); !errors.Is(err, storage.ErrNotFound) {
			f.Errorf("end a lease that has ended: %v", err)
		}
	}},
	{"a new holder takes an object over, and the former lease ends without it", func(f *fixture) {
		first, second := f.grant(0), f.grant(0)
		f.under(machine("a"), first)
		f.under(machine("a"), second)
		f.end(first)
		f.get(machine("a"))
		f.end(second)
		f.missing(machine("a"))
	}},
	{"a write without a lease leaves the object under its lease", func(f *fixture) {
		lease := f.grant(0)
		f.under(machine("a"), lease)
		changed := machine("a")
		changed.Labels = map[string]string{"edited": "yes"}
		f.update(changed)
		f.apply(storage.Op{Verb: storage.Put, Config: machine("a")})
		f.end(lease)
		f.missing(machine("a"))
	}},
	{"an object that was deleted and made anew is under no lease", func(f *fixture) {
		lease := f.grant(0)
		f.under(machine("a"), lease)
		f.delete(machine("a"), "")
		f.create(machine("a"))
		f.end(lease)
		f.get(machine("a"))
	}},
	{"an object that is taken from its lease stays, and may come under another", func(f *fixture) {
		first, second := f.grant(0), f.grant(0)
		f.under(machine("a"), first)
		before := f.get(machine("a"))
		f.apply(storage.Op{Verb: storage.Put, Config: machine("a"), Lease: storage.OffLease})
		f.end(first)
		if after := f.get(machine("a")); after.UID != before.UID {
			f.Errorf("the object was %+v and is %+v", before.Meta, after.Meta)
		}
		f.under(machine("a"), second)
		f.end(second)
		f.missing(machine("a"))
	}},
	{"an operation with a lease writes an object that is the same", func(f *fixture) {
		first, second := f.grant(0), f.grant(0)
		f.under(machine("a"), first)
		before := f.get(machine("a"))
		f.under(machine("a"), second)
		after := f.get(machine("a"))
		if after.ResourceVersion == before.ResourceVersion || after.UID != before.UID || after.Generation != before.Generation {
			f.Errorf("the object was %+v and is %+v", before.Meta, after.Meta)
		}
		f.end(first)
		f.end(second)
	}},
	{"an object comes under no lease that has ended", func(f *fixture) {
		lease := f.grant(0)
		f.end(lease)
		if err := f.refuseLeased(machine("a"), lease); !errors.Is(err, storage.ErrNotFound) {
			f.Errorf("the error is %v", err)
		}
	}},
	{"a condition that fails leaves the object under its lease", func(f *fixture) {
		first, second := f.grant(0), f.grant(0)
		f.under(machine("a"), first)
		if err := f.refuseLeased(versioned(machine("a"), "1"), second); !errors.Is(err, storage.ErrConflict) {
			f.Errorf("the error is %v", err)
		}
		f.end(first)
		f.missing(machine("a"))
		f.end(second)
	}},
	{"only WorkloadEntries can be under a lease", func(f *fixture) {
		lease := f.grant(0)
		if err := f.refuseLeased(entry("shop", "a"), lease); !errors.Is(err, storage.ErrInvalid) {
			f.Errorf("the error is %v", err)
		}
		f.end(lease)
	}},
}

// machine returns a WorkloadEntry as a registration would write it.
func machine(name string) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.WorkloadEntry, Namespace: "shop", Name: name},
		Spec: &networking.WorkloadEntry{Address: "10.0.0.1", ServiceAccount: "web"},
	}
}

func (f *fixture) leaser() storage.Leaser {
	f.Helper()
	l, ok := f.store.(storage.Leaser)
	if !ok {
		f.Skip("the store is not a storage.Leaser")
	}
	return l
}

func (f *fixture) grant(ttl time.Duration) storage.LeaseID {
	f.Helper()
	lease, err := f.leaser().Grant(f.Context(), ttl)
	if err != nil || lease == 0 {
		f.Fatalf("grant a lease: %v, %v", lease, err)
	}
	return lease
}

func (f *fixture) end(lease storage.LeaseID) {
	f.Helper()
	if err := f.leaser().Revoke(f.Context(), lease); err != nil {
		f.Fatalf("end a lease: %v", err)
	}
}

func (f *fixture) under(c *config.Config, lease storage.LeaseID) {
	f.Helper()
	f.apply(storage.Op{Verb: storage.Put, Config: c, Lease: lease})
}

// refuseLeased puts an object under a lease, which must be refused. It returns the error of the
// operation.
func (f *fixture) refuseLeased(c *config.Config, lease storage.LeaseID) error {
	f.Helper()
	return f.refuse(storage.Op{Verb: storage.Put, Config: c, Lease: lease})
}

func (f *fixture) missing(c *config.Config) {
	f.Helper()
	if _, err := f.store.Get(f.Context(), c.GroupVersionKind, c.Name, c.Namespace); !errors.Is(err, storage.ErrNotFound) {
		f.Errorf("get %s: %v", c.Key(), err)
	}
}

// awaitGone waits until an object is gone.
func (f *fixture) awaitGone(c *config.Config) {
	f.Helper()
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		if _, err := f.store.Get(f.Context(), c.GroupVersionKind, c.Name, c.Namespace); errors.Is(err, storage.ErrNotFound) {
			return
		}
		if time.Since(began) > leaseLimit {
			f.Fatalf("%s is still there after %v", c.Key(), leaseLimit)
		}
	}
}

func parse(t *testing.T, version string) int64 {
	t.Helper()
	revision, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return revision
}
