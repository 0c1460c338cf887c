package integration

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// damaged is a server on an etcd that the test writes to directly, too.
type damaged struct {
	*server
	etcd *clientv3.Client
}

func startDamaged(t *testing.T) damaged {
	t.Helper()
	endpoint := startEtcd(t)
	return damaged{startServer(t, serverOptions{etcd: endpoint, args: []string{"--api-socket", filepath.Join(t.TempDir(), "api.sock")}}), etcdtest.Dial(t, "http://"+endpoint)}
}

// put writes to etcd, bypassing the server.
func (d damaged) put(key, value string) (revision int64) {
	d.t.Helper()
	answer, err := d.etcd.Put(d.t.Context(), key, value)
	if err != nil {
		d.t.Fatal(err)
	}
	return answer.Header.Revision
}

// awaitQuarantine waits until the quarantine lists exactly these keys.
func (d damaged) awaitQuarantine(keys ...string) {
	d.t.Helper()
	eventually(d.t, "the quarantine is as it has to be", func() error {
		var got []string
		lines := strings.Split(strings.TrimSpace(d.must("", "store", "quarantine", "list")), "\n")
		for _, line := range lines[1:] {
			key, _, _ := strings.Cut(line, " ")
			got = append(got, key)
		}
		if fmt.Sprint(got) != fmt.Sprint(keys) {
			return fmt.Errorf("it has %q", lines)
		}
		return nil
	})
}

func (d damaged) expectCode(out outcome, code int, words ...string) {
	d.t.Helper()
	for _, w := range words {
		if !strings.Contains(out.stdout+out.stderr, w) {
			d.t.Errorf("%q is not in %s%s", w, out.stdout, out.stderr)
		}
	}
	if out.code != code {
		d.t.Errorf("exit code %d, want %d: %s%s", out.code, code, out.stdout, out.stderr)
	}
}

const shipKey = etcd.ConfigPrefix + "networking.istio.io/ServiceEntry/shop/"

// TestQuarantine: keys in the store that cannot be served are listed, do no harm, and can be
// deleted one by one, which the history records.
func TestQuarantine(t *testing.T) {
	t.Parallel()
	d := startDamaged(t)
	d.apply(ship("shop", "a", "10.0.0.1"), ship("shop", "b", "10.0.0.1"))
	d.awaitQuarantine()
	unknown, strange := etcd.ConfigPrefix+"example.org/Unknown/shop/x", etcd.ConfigPrefix+"a b\x00"
	escaped := maintenance.EscapeKey(strange)
	d.put(shipKey+"a", "junk")
	last := d.put(unknown, "of a newer server")
	d.put(strange, "")
	d.awaitQuarantine(escaped, unknown, shipKey+"a")

	table := d.must("", "store", "quarantine", "list")
	for _, words := range []string{"last good", "its kind is unknown", "does not have the form", `does not begin with`} {
		if !strings.Contains(table, words) {
			t.Errorf("%q is not in\n%s", words, table)
		}
	}
	d.expectCode(d.try("", "store", "status"), 1, "3 keys", "portolan store quarantine list")
	d.expectCode(d.try("", "upgrade", "check"), 1, "1 of kinds unknown to the server, 2 unreadable", "portolan store quarantine list")
	if report, err := d.get("/readyz", nil); err != nil || string(report) != "ok\n" {
		t.Errorf("readiness is %s, %v", report, err)
	}
	metrics, err := d.get("/metrics", nil)
	for _, line := range []string{"portolan_cache_broken_values 1\n", "portolan_cache_foreign_keys 2\n"} {
		if err != nil || !strings.Contains(string(metrics), line) {
			t.Errorf("the metrics do not have %q, %v", line, err)
		}
	}
	if got := d.must("", "get", "serviceentry", "-n", "shop"); !strings.Contains(got, "a ") || !strings.Contains(got, "b ") {
		t.Errorf("the last good object is not served: %s", got)
	}

	d.expectCode(d.try("", "store", "quarantine", "delete", unknown, "--revision", fmt.Sprint(last-1)), 75, "conflict", fmt.Sprint(last))
	d.expectCode(d.try("", "store", "quarantine", "delete", shipKey+"b"), 65, "not in quarantine")
	d.expectCode(d.try("", "store", "quarantine", "delete", shipKey+"b", "--revision", "2"), 75, "conflict")
	d.expectCode(d.try("", "store", "quarantine", "delete", etcd.InstanceKey, "--revision", "1"), 65, etcd.MeshPrefix)
	d.awaitQuarantine(escaped, unknown, shipKey+"a")

	d.expectCode(d.try("", "store", "quarantine", "delete", unknown), 0, unknown+" deleted at revision")
	d.awaitQuarantine(escaped, shipKey+"a")
	d.expectCode(d.try("", "store", "quarantine", "delete", escaped), 0)
	d.awaitQuarantine(shipKey + "a")
	d.expectCode(d.try("", "audit"), 0, "unknown/shop/x")
}

// TestABrokenObjectIsReplacedAndDeleted by its name, through the command line and the API, also
// by a server that could never decode it.
func TestABrokenObjectIsReplacedAndDeleted(t *testing.T) {
	t.Parallel()
	d := startDamaged(t)
	a := ship("shop", "a", "10.0.0.1")
	path := "/apis/networking.istio.io/v1/namespaces/shop/serviceentries/a"
	status := func(method, body string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, d.url(path), strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/yaml")
		answer, err := d.client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		return answer.StatusCode
	}
	for _, way := range []struct {
		name string
		mend func()
	}{
		{"apply", func() { d.must(a, "apply", "-f", "-") }},
		{"delete", func() { d.must("", "delete", "serviceentry/a", "-n", "shop") }},
		{"PUT", func() { expectEqual(t, "PUT", status(http.MethodPut, a), 200) }},
		{"DELETE", func() { expectEqual(t, "DELETE", status(http.MethodDelete, ""), 200) }},
	} {
		for _, seen := range []bool{true, false} {
			d.apply(a)
			d.put(shipKey+"a", "junk")
			d.awaitQuarantine(shipKey + "a")
			if !seen {
				d.kill()
				d.start()
				d.awaitQuarantine(shipKey + "a")
			}
			way.mend()
			d.awaitQuarantine()
			if t.Failed() {
				t.Fatalf("by %s, last good object served: %v", way.name, seen)
			}
		}
	}
}

// TestUpgrade: a newer server writes to the store of an older one. The older server continues
// to serve, can be restarted, and writes nothing until the store has its format again.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	d := startDamaged(t)
	d.apply(ship("shop", "a", "10.0.0.1"))
	d.expectCode(d.try("", "upgrade", "check"), 0, "storage format 3, for readers of 1 and above", "All is well.")

	d.put(etcd.FormatKey, "ptl\x01\x08\x04\x10\x04") // storage_format: 4, min_reader: 4
	for _, restarted := range []bool{false, true} {
		if restarted {
			d.kill()
			d.start()
		}
		d.expectCode(d.try(ship("shop", "b", "10.0.0.1"), "apply", "-f", "-"), 77,
			"storage format 4, and this server writes 3 at most", "portolan upgrade check")
		d.expectCode(d.try("", "delete", "serviceentry/a", "-n", "shop"), 77, "storage format 4")
		d.expectCode(d.try("", "upgrade", "check"), 1, "storage format 4, for readers of 4 and above", "needs a reader of storage format 4", "upgrade this server")
		eventually(t, "readiness tells", func() error {
			report, err := d.get("/readyz", nil)
			if err != nil {
				t.Fatalf("it is not ready: %v", err)
			}
			if !strings.Contains(string(report), "[!] cache: ") || !strings.Contains(string(report), "storage format 4") {
				return fmt.Errorf("%s", report)
			}
			return nil
		})
		if got := d.must("", "get", "serviceentry", "-n", "shop"); !strings.Contains(got, "a ") {
			t.Errorf("it reads %s", got)
		}
		late := xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", "10.0.0.9", "late", "shop", nil), Follow: true}
		connect(t, d.server, late)
		d.awaitSynced(d.revision(), "late")
	}

	d.put(etcd.FormatKey, "ptl\x01\x08\x01\x10\x01") // an older server's format, which this server upgrades
	d.apply(ship("shop", "b", "10.0.0.1"))
	eventually(t, "all is well again", func() error {
		report, err := d.get("/readyz", nil)
		if err == nil && string(report) != "ok\n" {
			err = fmt.Errorf("%s", report)
		}
		return err
	})
	d.expectCode(d.try("", "upgrade", "check"), 0, "storage format 2, for readers of 1 and above", "All is well.")
}
