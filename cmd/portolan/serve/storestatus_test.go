package serve

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/discovery"
)

// TestProblems: each fault in a status is a problem.
func TestProblems(t *testing.T) {
	t.Parallel()
	status := maintenance.Status{
		Cache: maintenance.CacheStatus{Degraded: "etcd does not answer"}, Quarantined: 2,
		Registries: []maintenance.RegistryStatus{{Name: "Consul/dc1", Problem: "it cannot be read"}, {Name: "ServiceEntry"}}, Backup: &maintenance.BackupStatus{Error: "disk full"},
		Sources: []maintenance.SourceStatus{{Name: "kube://east", Problem: "no rights"}, {Name: "/etc/mesh", Refused: 3}, {Name: "secrets/east"}},
		Store: &maintenance.StoreStatus{
			Alarms: []string{"NOSPACE"}, DBBytes: 90, QuotaBytes: 100, Members: []maintenance.StoreMember{{Name: "cp-2", Error: "unreachable"}},
		},
	}
	all := strings.Join(problems(status), "\n")
	for _, words := range []string{"etcd does not answer", "registry Consul/dc1: it cannot be read", "source kube://east: no rights", "source /etc/mesh: what is not served as it stands there: 3 (portolan source describe /etc/mesh)", "2 ", "disk full", "NOSPACE", "90 %", "cp-2"} {
		if !strings.Contains(all, words) {
			t.Errorf("%q is not in\n%s", words, all)
		}
	}
	if strings.Contains(all, "ServiceEntry") || strings.Contains(all, "secrets/east") {
		t.Errorf("a registry or a source without a problem is one:\n%s", all)
	}
	if none := problems(maintenance.Status{Store: &maintenance.StoreStatus{QuotaBytes: 100, DBBytes: 10}}); len(none) > 0 {
		t.Errorf("%q", none)
	}
}

type followed struct {
	discovery.Instance
	sources []discovery.SourceStatus
}

func (followed) Provider() discovery.Provider { return discovery.Consul }

func (f followed) SourceStatuses() []discovery.SourceStatus { return f.sources }

// ownRegistry is a registry without external sources.
type ownRegistry struct {
	discovery.Instance
	synced bool
}

func (ownRegistry) Provider() discovery.Provider { return discovery.External }

func (o ownRegistry) HasSynced() bool { return o.synced }

func (ownRegistry) Services() []*discovery.Service { return make([]*discovery.Service, 3) }

// TestRegistryStatuses: every source of every registry has its own status.
func TestRegistryStatuses(t *testing.T) {
	t.Parallel()
	then := time.Unix(1e9, 0).UTC()
	got := registryStatuses([]discovery.Instance{
		ownRegistry{synced: true}, ownRegistry{},
		followed{sources: []discovery.SourceStatus{{State: discovery.SourceLive, Services: 2}}},
		followed{sources: []discovery.SourceStatus{
			{Name: "dc1", State: discovery.SourceLastKnown, AsOf: then, Services: 5, Problem: "away"}, {Name: "dc2", State: discovery.SourceSyncing},
		}},
	})
	want := []maintenance.RegistryStatus{
		{Name: "ServiceEntry", State: "live", Services: 3}, {Name: "ServiceEntry", State: "syncing", Services: 3},
		{Name: "Consul", State: "live", Services: 2},
		{Name: "Consul/dc1", State: "lastKnown", AsOf: then, Services: 5, Problem: "away"}, {Name: "Consul/dc2", State: "syncing"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestObjectSources: the store, registries and sources of other servers are not among the sources of
// a status.
func TestObjectSources(t *testing.T) {
	t.Parallel()
	got := objectSources(SourceList{Items: []SourceStatus{
		{Name: "store", Kind: storeKind, Writable: true, Objects: map[string]int{"Gateway": 1}},
		{Name: "kube://east", Kind: "cluster", Objects: map[string]int{"Gateway": 1, "Sidecar": 2}, Problem: "no rights", Refused: 2},
		{Name: "services/east", Kind: clusterServicesKind, Endpoints: &EndpointsStatus{Services: 1}},
		{Name: "secrets/east", Kind: clusterSecretsKind},
		{Name: "/etc/mesh", Kind: "absent", Absent: true},
	}})
	want := []maintenance.SourceStatus{
		{Name: "kube://east", Kind: "cluster", Objects: 3, Problem: "no rights", Refused: 2}, {Name: "secrets/east", Kind: clusterSecretsKind},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
