package serve

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache/kube"
	"github.com/portolan-mesh/portolan/discovery/lastknown"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/logtest"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// savedForms are the forms in which servers have saved an object of a cluster.
var savedForms = map[string]func(*config.Config) ([]byte, error){
	"the form of the store":      func(o *config.Config) ([]byte, error) { return (*savedObject)(o).Value() },
	"JSON, as of older versions": func(o *config.Config) ([]byte, error) { return config.ToJSON(o, "") },
}

// lastHad is a cluster, and a server whose store has what the cluster last had.
type lastHad struct {
	*clusterSource
	*server
	memory lastknown.Memory
	log    *logtest.Log
}

func newLastHad(t testing.TB, items map[string][]byte) lastHad {
	t.Helper()
	store, err := etcd.New(etcdtest.Start(t), etcd.Options{Schemas: schema.Pilot()})
	if err != nil {
		t.Fatal(err)
	}
	log := &logtest.Log{}
	h := lastHad{
		&clusterSource{name: KubeScheme + "east"},
		&server{configs: store, logger: slog.New(slog.NewTextHandler(log, nil)), o: Options{Mesh: meshconfig.Default()}},
		lastknown.In(store, nil), log,
	}
	var writes []etcd.SideWrite
	const buckets = 64
	for number := range uint32(buckets) {
		some := map[string][]byte{}
		for path, value := range items {
			if uint32(len(path)+int(path[len(path)-1]))%buckets == number {
				some[path] = value
			}
		}
		value, err := etcd.EncodeRegistryBucket(h.SourceName(), number, some)
		if err != nil {
			t.Fatal(err)
		}
		writes = append(writes, etcd.SideWrite{Key: etcd.RegistryBucketKey(h.SourceName(), number), Value: value, Revision: etcd.Any})
	}
	head, err := etcd.EncodeRegistryHead(&etcd.RegistryHead{Source: h.SourceName(), Confirmed: time.Unix(1_900_000_000, 0), Touched: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	writes = append(writes, etcd.SideWrite{Key: etcd.RegistryHeadKey(h.SourceName()), Value: head, Revision: etcd.Any})
	for _, write := range writes {
		if _, err := store.WriteSide(t.Context(), []etcd.SideWrite{write}); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// ofCluster is an object as the cache of a cluster has it.
func ofCluster(t testing.TB, name string, kind config.GroupVersionKind, spec any) *config.Config {
	t.Helper()
	out := &config.Config{
		Meta: config.Meta{GroupVersionKind: kind, Namespace: "shop", Name: name, UID: "of-" + name, Generation: 3, CreationTimestamp: time.Unix(1_700_000_000, 0).UTC()},
		Spec: spec,
	}
	if err := kube.Stamp(out); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRecallReadsAllForms: a server reads what it and older versions saved of a cluster, with versions and
// health. Of what it cannot read it leaves out no more than that, and says so.
func TestRecallReadsAllForms(t *testing.T) {
	t.Parallel()
	report := &health.Report{Namespace: "shop", Name: "vm", UID: "of-vm", Healthy: true, Reason: "Probe", Since: time.Unix(1_800_000_000, 0).UTC()}
	want := []*config.Config{
		ofCluster(t, "web", schema.ServiceEntry, &networking.ServiceEntry{Hosts: []string{"web.example"}}),
		kube.WithHealth(ofCluster(t, "vm", schema.WorkloadEntry, &networking.WorkloadEntry{Address: "10.0.0.1"}), report),
	}
	for form, encode := range savedForms {
		t.Run(form, func(t *testing.T) {
			t.Parallel()
			items := map[string][]byte{"networking.istio.io/Frob/shop/web": []byte("ptl\x01")}
			for _, object := range want {
				value, err := encode(object)
				if err != nil {
					t.Fatal(err)
				}
				items[object.Key().Path()] = value
			}
			h := newLastHad(t, items)
			got, confirmed, err := h.recall(t.Context(), h.memory, h.server)
			if err != nil || len(got) != len(want) || confirmed.Unix() != 1_900_000_000 {
				t.Fatalf("%d objects as of %s: %v", len(got), confirmed, err)
			}
			for i, object := range got {
				if !config.SameContent(object, want[i]) || object.ResourceVersion != want[i].ResourceVersion || object.UID != want[i].UID || object.Generation != 3 {
					t.Errorf("it is\n%v, want\n%v", object, want[i])
				}
			}
			if status := got[1].Status; status == nil || status.(interface{ String() string }).String() != want[1].Status.(interface{ String() string }).String() {
				t.Errorf("the status is %v, want %v", status, want[1].Status)
			}
			if text := h.log.String(); strings.Count(text, "left out") != 1 || !strings.Contains(text, "Frob") {
				t.Errorf("the log is %s", text)
			}
		})
	}
}

// BenchmarkRecall reads 10 MB of objects, 50 kB each, that were saved of a cluster.
func BenchmarkRecall(b *testing.B) {
	for _, form := range []string{"the form of the store", "JSON, as of older versions"} {
		items := map[string][]byte{}
		for i := range 200 {
			spec := &networking.ServiceEntry{Hosts: []string{fmt.Sprintf("large-%d.example", i)}}
			for n := range 400 {
				spec.Endpoints = append(spec.Endpoints, &networking.WorkloadEntry{
					Address: fmt.Sprintf("10.7.%d.%d", n>>8, n&255), Locality: "eu/a", Labels: map[string]string{"app": spec.Hosts[0], "version": fmt.Sprintf("%050d", n*n*i)},
				})
			}
			object := ofCluster(b, fmt.Sprintf("large-%d", i), schema.ServiceEntry, spec)
			value, err := savedForms[form](object)
			if err != nil {
				b.Fatal(err)
			}
			items[object.Key().Path()] = value
		}
		h := newLastHad(b, items)
		b.Run(form, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if got, _, err := h.recall(b.Context(), h.memory, h.server); err != nil || len(got) != len(items) {
					b.Fatal(len(got), err)
				}
			}
		})
	}
}
