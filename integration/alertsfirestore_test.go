package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/etcd"
)

func anEtcdThatIsGone(t *testing.T, s *scrapes) {
	e := startEtcdProcess(t)
	server := e.server()
	s.take("cp-1", server)
	e.process.Kill()
	server.awaitMetric("portolan_store_up", "0")
	server.awaitMetric("portolan_store_reachable", "0")
	server.awaitMetric(`portolan_leader{job="server"}`, "0")
	s.take("cp-1", server)
	s.expect(map[string][]string{"PortolanStoreDown": {`{instance="cp-1"}`}, "PortolanStoreUnreachable": {`{instance="cp-1"}`}, "PortolanNoLeader": {`{}`}})
}

func junkInEtcd(t *testing.T, s *scrapes) {
	d := startDamaged(t)
	d.apply(ship("shop", "a", "10.0.0.1"))
	s.take("cp-1", d.server)
	d.put(shipKey+"a", "junk")
	d.put(etcd.ConfigPrefix+"example.org/Unknown/shop/x", "of a newer server")
	d.awaitMetric("portolan_cache_broken_values", "1")
	d.awaitMetric("portolan_cache_foreign_keys", "1")
	s.take("cp-1", d.server)
	s.expect(map[string][]string{"PortolanBrokenValues": {`{instance="cp-1"}`}, "PortolanForeignKeys": {`{instance="cp-1"}`}})
}

func aNewerStore(t *testing.T, s *scrapes) {
	d := startDamaged(t)
	s.take("cp-1", d.server)
	d.put(etcd.FormatKey, "ptl\x01\x08\x04\x10\x04") // storage_format: 4, min_reader: 4
	d.awaitMetric("portolan_store_newer", "1")
	s.take("cp-1", d.server)
	s.expect(map[string][]string{"PortolanStoreNewer": {`{instance="cp-1"}`}}, "PortolanNoLeader")
}

func aDyingStore(t *testing.T, s *scrapes) {
	server := startLeading(t, serverOptions{})
	s.take("cp-1", server)
	for i := range 4 {
		server.killStore()
		server.awaitMetric("portolan_store_restarts_total", fmt.Sprint(i+1))
		server.awaitMetric("portolan_store_up", "1")
	}
	server.awaitMetric("portolan_store_reachable", "1")
	s.take("cp-1", server)
	s.expect(map[string][]string{"PortolanStoreRestarts": {`{instance="cp-1"}`}}, "PortolanNoLeader")
}

func aFillingStore(t *testing.T, s *scrapes) {
	server := startLeading(t, serverOptions{args: []string{"--store-quota", "64Mi"}})
	s.take("cp-1", server)
	written := 0
	batch := func() {
		var documents []string
		for range 10 {
			documents = append(documents, large(written))
			written++
		}
		server.must(strings.Join(documents, "\n---\n"), "apply", "-f", "-")
	}
	used := func() float64 {
		return metric(t, server, "portolan_store_db_bytes") / metric(t, server, "portolan_store_quota_bytes")
	}
	const enough = 0.82
	for used() < enough { // a few rounds, since the store looks at its size now and then
		before := used()
		batch()
		eventually(t, "the store has looked at its size", func() error {
			if used() == before {
				return errors.New("it is as it was")
			}
			return nil
		})
		for range int((enough - used()) / (used() - before)) {
			batch()
		}
	}
	s.take("cp-1", server)
	s.expect(map[string][]string{"PortolanStoreFilling": {`{instance="cp-1"}`}})
}

func failingBackups(t *testing.T, s *scrapes) {
	dir := t.TempDir()
	gone := filepath.Join(dir, "backup")
	if err := os.WriteFile(gone, nil, 0o600); err != nil { // no directory
		t.Fatal(err)
	}
	server := startLeading(t, serverOptions{})
	s.take("cp-1", server)
	if err := server.process.terminate(t); err != nil {
		t.Fatal(err)
	}
	server.o.args = append(server.o.args, "--backup-dir", gone, "--backup-without-keys")
	server.launch()
	server.awaitMetric("portolan_backup_failures_total", "1")
	server.awaitMetric(`portolan_leader{job="server"}`, "1")
	s.take("cp-1", server)
	s.expect(map[string][]string{"PortolanBackupNever": {`{instance="cp-1"}`}})
}

// aLostMember: the certificates of the fleet are of a test, and live for a day.
func aLostMember(t *testing.T, s *scrapes) {
	plain := startLeading(t, serverOptions{})
	s.take("cp-1", plain)
	plain.kill()
	f := startFleet(t, "cp-1", "cp-2", "cp-3")
	_, others := f.leader()
	f.kill(others[0])
	server := others[1]
	server.awaitMetric(`portolan_store_members{status="unreachable"}`, "1")
	server.awaitMetric("portolan_store_up", "1")
	s.take("cp-1", server)
	s.expect(map[string][]string{
		"PortolanStoreMemberAway":          {`{status="unreachable",instance="cp-1"}`},
		"PortolanMemberCertificateExpires": {`{certificate="member",instance="cp-1"}`},
		"PortolanMemberAuthorityExpires":   {`{certificate="authority",instance="cp-1"}`},
	}, "PortolanNoLeader") // another server leads
}

// aSmallDisk: the store has room for itself, and little more.
func aSmallDisk(t *testing.T, s *scrapes) {
	dir := smallFileSystem(t, 400)
	plain := startLeading(t, serverOptions{})
	s.take("cp-1", plain)
	plain.kill()
	s.take("cp-1", startLeading(t, serverOptions{dataDir: filepath.Join(dir, "data")}))
	s.expect(map[string][]string{"PortolanStoreLowDisk": {`{instance="cp-1"}`}})
}

// metric returns the value of a series without labels.
func metric(t *testing.T, s *server, name string) float64 {
	t.Helper()
	text, err := s.get("/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	var value float64
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, name+" %g", &value); err == nil {
			return value
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}
