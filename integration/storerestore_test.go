package integration

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	clientrest "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/resttest"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// later is a service that is added after the snapshot, or after its restore.
func later(name string, port int) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.shop.test]
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1}]
`, "$name", name, "$port", port)
}

// TestEnvoyStoreRestored restores a snapshot of the embedded store while requests run. The
// proxies lose what they got since the snapshot. Nothing is rejected or interrupted.
func TestEnvoyStoreRestored(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		s, x := startServer(t, serverOptions{}), newShop(t)
		s.apply(x.all(100, 0))
		edge, client := s.startPair(v)
		awaitReply(t, x.atGateway("/"), "v1")
		awaitReply(t, x.atSidecar("/"), "v1")
		loads := []*load{startLoad(t, "gateway", x.atGateway("/")), startLoad(t, "sidecar", x.atSidecar("/"))}
		informer := s.follow(t)
		file := filepath.Join(t.TempDir(), "mesh.snapshot")
		s.must("", "store", "backup", "--without-keys", file)
		before := s.must("", "export")
		lost := freePort(t)
		for range 3 { // makes some more revisions
			s.apply(x.routes(50, 50))
			s.apply(x.routes(0, 100), later("lost", lost))
			s.remove(later("lost", lost))
		}
		s.awaitSynced(s.apply(later("lost", lost)), "edge", "client")
		awaitOnly(t, loads, "v2")
		informer.await(s)

		if err := s.process.terminate(t); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(s.o.dataDir, s.o.dataDir+".old"); err != nil {
			t.Fatal(err)
		}
		out := command(t, "", "store", "restore", "--without-keys", file, "--data-dir", s.o.dataDir)
		if out.code != 0 {
			t.Fatal(out.stderr)
		}
		s.start()
		awaitOnly(t, loads, "v1")
		s.awaitSynced(s.revision(), "edge", "client")
		edge.awaitCluster(fmt.Sprintf("outbound|%d||lost.shop.test", lost), false)
		client.awaitCluster(fmt.Sprintf("outbound|%d||lost.shop.test", lost), false)
		awaitClosed(t, lost)
		expectEqual(t, "the configuration", s.must("", "export"), before)
		informer.await(s)

		s.awaitSynced(s.apply(x.routes(0, 100)), "edge", "client")
		awaitOnly(t, loads, "v2")
		informer.await(s)
		for _, l := range loads {
			l.expectUnharmed()
		}
		s.expectNothingRejected()
		edge.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestStoreRestoredBeneathServers restores the etcd of two running servers; the streams of
// their proxies stay, too. It uses this product's command, and etcd's own, after which
// revisions continue from the snapshot's.
func TestStoreRestoredBeneathServers(t *testing.T) {
	for name, restore := range map[string]func(t *testing.T, file string) (etcdDir string){
		"portolan": func(t *testing.T, file string) string {
			dir := filepath.Join(t.TempDir(), "data")
			if out := command(t, "", "store", "restore", "--without-keys", file, "--data-dir", dir); out.code != 0 {
				t.Fatal(out.stderr)
			}
			return filepath.Join(dir, "etcd")
		},
		"etcdutl": func(t *testing.T, file string) string {
			c, dir := embed.NewConfig(), filepath.Join(t.TempDir(), "etcd")
			err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
				SnapshotPath: file, OutputDataDir: dir, Name: c.Name, PeerURLs: []string{c.AdvertisePeerUrls[0].String()},
				InitialCluster: c.InitialCluster, InitialClusterToken: c.InitialClusterToken,
			})
			if err != nil {
				t.Fatal(err)
			}
			return dir
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBothVariants(t, func(t *testing.T, v protocol.Variant) { restoreBeneath(t, v, restore) })
		})
	}
}

func restoreBeneath(t *testing.T, v protocol.Variant, restore func(*testing.T, string) string) {
	address := local(freePort(t))
	at := etcdtest.At(t, "http://"+address)
	etcd := etcdtest.NewServer(t, at)
	one := startServer(t, serverOptions{etcd: address, args: []string{"--api-socket", filepath.Join(t.TempDir(), "api.sock")}})
	two := startServer(t, serverOptions{etcd: address})
	x, lost, fresh := newShop(t), freePort(t), freePort(t)
	one.apply(x.all(90, 10))
	var clients []*xdstest.Client
	for _, s := range []*server{one, two} {
		clients = append(clients, connect(t, s, xdstest.ClientOptions{
			Node:    xdstest.NewNode("router", "10.0.0.1", "edge", "shop", map[string]string{"app": "edge"}),
			Variant: v, Follow: true,
		}))
		s.awaitSynced(one.revision(), "edge")
	}
	informer := two.follow(t)
	file := filepath.Join(t.TempDir(), "mesh.snapshot")
	one.must("", "store", "backup", "--without-keys", file)
	before, held := one.must("", "export"), textOf(clients[0].Held)
	for i := range 10 {
		one.apply(x.routes(i, 100-i))
	}
	revision := two.apply(x.routes(0, 100), later("lost", lost))
	for _, s := range []*server{one, two} {
		s.awaitSynced(revision, "edge")
	}
	informer.await(two)

	etcd.Stop()
	dir := restore(t, file)
	etcdtest.NewServer(t, at, func(c *embed.Config) { c.Dir = dir })
	for i, c := range clients {
		c.Await("the state of the snapshot", func(now func(string) map[string]xdstest.Held) bool { return textOf(now) == held })
		s := []*server{one, two}[i]
		eventually(t, "the configuration is that of the snapshot", func() error {
			if out := s.try("", "export"); out.stdout != before {
				return fmt.Errorf("it is %s%s", out.stdout, out.stderr)
			}
			return nil
		})
	}
	informer.await(two)
	one.apply(later("fresh", fresh))
	for _, c := range clients {
		c.Await("what comes after the restore", func(held func(string) map[string]xdstest.Held) bool {
			_, ok := held(xdstest.ClusterType)[fmt.Sprintf("outbound|%d||fresh.shop.test", fresh)]
			return ok
		})
	}
	informer.await(two)
	one.expectNothingRejected()
	two.expectNothingRejected()
}

// textOf returns what a client has: names, versions, bytes.
func textOf(held func(typeURL string) map[string]xdstest.Held) string {
	var out strings.Builder
	for _, typeURL := range []string{xdstest.ClusterType, xdstest.EndpointType, xdstest.ListenerType, xdstest.RouteType} {
		all := map[string]string{}
		for name, h := range held(typeURL) {
			all[name] = h.Version + " " + string(h.Body.GetValue())
		}
		fmt.Fprintln(&out, typeURL, all) // maps print in order
	}
	return out.String()
}

// follower is an informer of client-go for ServiceEntries.
type follower struct {
	t     *testing.T
	store cache.Store
}

var entriesResource = runtimeschema.GroupVersionResource{Group: "networking.istio.io", Version: "v1", Resource: "serviceentries"}

// follow runs an informer until the test ends.
func (s *server) follow(t *testing.T) follower {
	t.Helper()
	d, err := dynamic.NewForConfig(&clientrest.Config{Host: s.url(""), Transport: &http.Transport{}})
	if err != nil {
		t.Fatal(err)
	}
	informer := resttest.Informer(d.Resource(entriesResource))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { informer.RunWithContext(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return follower{t, informer.GetStore()}
}

// await waits until the informer has what the server has.
func (f follower) await(s *server) {
	f.t.Helper()
	eventually(f.t, "the informer has what the server has", func() error {
		var list unstructured.UnstructuredList
		if _, err := s.get("/apis/networking.istio.io/v1/serviceentries?consistent=true", &list); err != nil {
			return err
		}
		want, got := map[string]string{}, map[string]string{}
		for _, item := range list.Items {
			want[item.GetNamespace()+"/"+item.GetName()] = item.GetResourceVersion()
		}
		for _, item := range f.store.List() {
			object := item.(*unstructured.Unstructured)
			got[object.GetNamespace()+"/"+object.GetName()] = object.GetResourceVersion()
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("it has %v, and the server %v", got, want)
		}
		return nil
	})
}
