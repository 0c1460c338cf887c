package memory_test

import (
	"slices"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/address"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/storetest"
)

func TestAddresses(t *testing.T) {
	t.Parallel()
	storetest.RunAddresses(t, func(_ *testing.T, ranges address.Ranges, now func() time.Time) storetest.AddressSubject {
		store := memory.New(schema.Pilot(), memory.Options{Now: now, Addresses: ranges})
		return storetest.AddressSubject{
			Stores: []storetest.AddressStore{store},
			Assigned: func(*testing.T) []*address.Assignment {
				_, content := store.Snapshot()
				return slices.Collect(content.Addresses.Values())
			},
		}
	})
}
