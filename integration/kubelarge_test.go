package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/integration/load/meter"
)

// largeNamespace has the objects of a large cluster. Nothing of it concerns other namespaces.
const largeNamespace = "large"

// longWait is how long a server may take for what a large cluster has, on a machine that is busy.
const longWait = 20 * patience

// largeKind makes the spec of one of many large objects of a kind. entry makes one of the parts of
// which the object has so many that it is large.
type largeKind struct {
	kind, group, version, resource string
	spec                           func(host string, entries []any) map[string]any
	entry                          func(host string, n int) any
}

// largeKinds are the kinds of a large cluster.
func largeKinds() []largeKind {
	const networking = "networking.istio.io"
	own := []any{"."}
	random := func(host string, n int) string { // as hardly compresses
		sum := sha256.Sum256(fmt.Append(nil, host, n))
		return hex.EncodeToString(sum[:30])
	}
	return []largeKind{
		{"ServiceEntry", networking, "v1", "serviceentries", func(host string, entries []any) map[string]any {
			return map[string]any{"hosts": []any{host}, "exportTo": own, "resolution": "STATIC", "ports": []any{map[string]any{"number": 80, "name": "http", "protocol": "HTTP"}}, "endpoints": entries}
		}, func(host string, n int) any {
			return map[string]any{"address": fmt.Sprintf("10.7.%d.%d", n>>8, n&255), "locality": "eu/a", "labels": map[string]any{"app": host, "version": random(host, n)}}
		}},
		{"VirtualService", networking, "v1", "virtualservices", func(host string, entries []any) map[string]any {
			return map[string]any{"hosts": []any{host}, "exportTo": own, "http": entries}
		}, func(host string, n int) any {
			return map[string]any{
				"match": []any{map[string]any{"uri": map[string]any{"prefix": "/" + random(host, n)}}},
				"route": []any{map[string]any{"destination": map[string]any{"host": host}}},
			}
		}},
		{"DestinationRule", networking, "v1", "destinationrules", func(host string, entries []any) map[string]any {
			return map[string]any{"host": host, "exportTo": own, "subsets": entries}
		}, func(host string, n int) any {
			return map[string]any{"name": fmt.Sprintf("s%d", n), "labels": map[string]any{"version": random(host, n)}}
		}},
		{"EnvoyFilter", networking, "v1alpha3", "envoyfilters", func(_ string, entries []any) map[string]any {
			return map[string]any{"configPatches": entries}
		}, func(host string, n int) any {
			return map[string]any{"applyTo": "CLUSTER", "match": map[string]any{"cluster": map[string]any{"name": fmt.Sprintf("none-%d", n)}}, "patch": map[string]any{
				"operation": "MERGE", "value": map[string]any{"alt_stat_name": random(host, n)},
			}}
		}},
		{"AuthorizationPolicy", "security.istio.io", "v1", "authorizationpolicies", func(host string, entries []any) map[string]any {
			return map[string]any{"selector": map[string]any{"matchLabels": map[string]any{"app": host}}, "rules": []any{map[string]any{"to": []any{map[string]any{"operation": map[string]any{"paths": entries}}}}}}
		}, func(host string, n int) any { return "/" + random(host, n) }},
	}
}

// path returns the path of the large objects.
func (k largeKind) path() string {
	return "/apis/" + k.group + "/" + k.version + "/namespaces/" + largeNamespace + "/" + k.resource
}

// object returns an object of about a size, in JSON.
func (k largeKind) object(t testing.TB, i, size int) string {
	t.Helper()
	host := fmt.Sprintf("large-%d.example", i)
	one, err := json.Marshal(k.entry(host, 0))
	if err != nil {
		t.Fatal(err)
	}
	var entries []any
	for n := range size / len(one) {
		entries = append(entries, k.entry(host, n))
	}
	text, err := json.Marshal(map[string]any{
		"apiVersion": k.group + "/" + k.version, "kind": k.kind, "spec": k.spec(host, entries),
		"metadata": map[string]any{
			"name": fmt.Sprintf("large-%d", i), "namespace": largeNamespace, "uid": uuid.NewUUID(), "generation": 1, "creationTimestamp": "2026-01-02T03:04:05Z",
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// fill puts so many large objects of each kind into the etcd of the cluster, as its API server would:
// through that they would take minutes. It returns how many bytes they have.
func (f *faultyCluster) fill(each, size int) (bytes int) {
	f.t.Helper()
	f.k.must("POST", "/api/v1/namespaces", `{"metadata":{"name":"`+largeNamespace+`"}}`)
	began := time.Now()
	var writing errgroup.Group
	writing.SetLimit(8)
	for _, kind := range largeKinds() {
		for i := range each {
			object := kind.object(f.t, i, size)
			bytes += len(object)
			writing.Go(func() error {
				_, err := f.k.api.etcd.Put(f.t.Context(), fmt.Sprintf("/registry/%s/%s/%s/large-%d", kind.group, kind.resource, largeNamespace, i), object)
				return err
			})
		}
	}
	if err := writing.Wait(); err != nil {
		f.t.Fatal(err)
	}
	for _, kind := range largeKinds() { // which the API server lists of its cache
		eventuallyWithin(f.t, longWait, "the API server has all objects of kind "+kind.kind, func() error {
			names := map[string]string{"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
			_, _, text, err := f.k.api.do(f.t.Context(), "GET", kind.path()+"?resourceVersion=0", "", names)
			if n := strings.Count(text, `"uid":`); err == nil && n != each {
				err = fmt.Errorf("%d", n)
			}
			return err
		})
	}
	f.t.Logf("%d objects, %d MB, were written in %s", each*len(largeKinds()), bytes/1e6, time.Since(began).Round(100*time.Millisecond))
	return bytes
}

// awaitLarge waits until the server has so many objects of each large kind.
func (f *faultyCluster) awaitLarge(each int) {
	f.t.Helper()
	eventuallyWithin(f.t, longWait, "all objects are there", func() error {
		var sources serve.SourceList
		if _, err := f.server.get(serve.SourcesPath, &sources); err != nil {
			return err
		}
		i := slices.IndexFunc(sources.Items, func(of serve.SourceStatus) bool { return of.Name == configSource })
		for _, kind := range largeKinds() {
			if n := sources.Items[i].Objects[kind.kind]; n < each {
				return fmt.Errorf("%d of kind %s", n, kind.kind)
			}
		}
		return nil
	})
}

// expectLarge fails unless the server has what the cluster has of the large kinds.
func (f *faultyCluster) expectLarge(each int) {
	f.t.Helper()
	for _, kind := range largeKinds() {
		n, err := f.k.same(f.server, kind.path())
		if err != nil || n != each {
			f.t.Errorf("%s: %d objects: %v", kind.kind, n, err)
		}
	}
}

// logMemory logs what memory the server has used since its start. The figures are those of docs/performance.md.
func (f *faultyCluster) logMemory(what string, of int) {
	f.t.Helper()
	used, err := meter.Process(f.server.process.pid()).Usage()
	if err == nil {
		_, err = f.server.get("/debug/pprof/heap?gc=1", nil)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Logf("%s: memory for a MB of objects: %.1f MB at the peak, %.1f MB of heap settled", what, float64(used.Peak)/float64(of), f.server.gauge("go_memstats_heap_alloc_bytes")/float64(of))
}

// awaitSaved waits until the store has so many objects of each large kind, and the one of the start.
func (f *faultyCluster) awaitSaved(each int) {
	f.t.Helper()
	said := fmt.Sprintf("source=config-kube/east items=%d ", 1+each*len(largeKinds()))
	eventuallyWithin(f.t, longWait, "the objects are saved", func() error {
		if !strings.Contains(f.server.process.output(), said) {
			return errors.New("the log has no " + said)
		}
		return nil
	})
}

// TestKubernetesLarge: a cluster has 100 MB of Istio's objects. A server that lists them serves them.
// After its API server is killed, the source is named and proxies keep what they have. A server that
// starts meanwhile has all objects of before. A list of the API server that is back is cut off, and
// in the end the server has what the cluster has.
func TestKubernetesLarge(t *testing.T) {
	needEnvoy(t)
	needKubeAPIServer(t)
	f := startFaultyCluster(t, "--pprof", "--log-level", "info,jobs=debug")
	f.whole("the start")
	const each, size = 400, 50_000
	if err := f.server.process.terminate(t); err != nil {
		t.Fatal(err)
	}
	bytes := f.fill(each, size)
	since := func(began time.Time) time.Duration { return time.Since(began).Round(100 * time.Millisecond) }
	ready := func() error {
		_, err := f.server.get("/readyz", nil)
		return err
	}

	f.wire.passed.Store(0)
	began := time.Now()
	f.server.launch()
	eventuallyWithin(t, longWait, "the server is ready", ready)
	f.awaitLarge(each)
	t.Logf("a server has listed all objects after %s", since(began))
	listed := f.wire.passed.Load()
	f.awaitSaved(each)
	t.Logf("all is saved after %s", since(began))
	f.wholeWithin(longWait, "a start")
	f.logMemory("listed", bytes)

	f.k.api.process.Kill()
	f.named("")
	f.awaitLarge(each)
	began = time.Now()
	if err := f.server.process.terminate(t); err != nil {
		t.Fatal(err)
	}
	t.Logf("it ended within %s", since(began))
	began = time.Now()
	f.server.launch()
	eventuallyWithin(t, longWait, "the server is ready", ready)
	t.Logf("a server that knows them is ready after %s", since(began))
	f.awaitLarge(each)
	t.Logf("it has them after %s", since(began))
	f.named("")

	f.wire.passed.Store(0)
	f.k.api.program.Args = slices.DeleteFunc(f.k.api.program.Args, func(arg string) bool { return strings.HasPrefix(arg, "--feature-gates") })
	f.k.api.start(t)
	eventuallyWithin(t, longWait, "a part of the objects came", func() error {
		if passed := f.wire.passed.Load(); passed < listed/4 {
			return fmt.Errorf("%d bytes of %d", passed, listed)
		}
		return nil
	})
	f.wire.set(true)
	f.awaitLarge(each)
	f.wire.set(false)
	f.wholeWithin(longWait, "a restart with streamed lists")
	f.logMemory("streamed", bytes)
	f.expectLarge(each)
	for _, l := range f.loads {
		l.expectUnharmed()
	}
}
