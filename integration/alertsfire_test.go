package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/identity/secure/securetest"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/secret/secrettest"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// awaitMetric waits until a series of the server has a value. The series is as /metrics has it.
func (s *server) awaitMetric(series, value string) {
	s.t.Helper()
	eventually(s.t, series+" is "+value, func() error {
		text, err := s.get("/metrics", nil)
		if err != nil {
			return err
		}
		if !strings.Contains("\n"+string(text), "\n"+series+" "+value+"\n") {
			return errors.New("it is not")
		}
		return nil
	})
}

// TestAlertsFireForReal brings servers into the conditions that rules are about, scrapes their
// metrics before and after, and has Prometheus judge these: the right alert fires, and no
// other.
func TestAlertsFireForReal(t *testing.T) {
	t.Parallel()
	needPromtool(t)
	for name, scenario := range map[string]func(*testing.T, *scrapes){
		"a healthy mesh": aHealthyMesh, "a server that is killed": aKilledServer, "an etcd that is gone": anEtcdThatIsGone, "junk in etcd": junkInEtcd,
		"a newer store": aNewerStore, "a store process that dies": aDyingStore, "a directory at fault": aDirectoryAtFault, "a directory that is gone": aDirectoryThatIsGone, "a list of endpoints at fault": aListAtFault,
		"a Consul that is gone": aConsulThatIsGone, "certificates near their end": endingCertificates, "a proxy that refuses": aRefusingProxy, "a store that fills up": aFillingStore,
		"backups that fail": failingBackups, "servers with different files": differentFiles, "a store that loses a member": aLostMember,
		"a server without the sealing key": aServerWithoutTheKey,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(t, &scrapes{t: t})
		})
	}
}

// startLeading starts a server, and waits until it does the jobs of all.
func startLeading(t *testing.T, o serverOptions) *server {
	t.Helper()
	s := startServer(t, o)
	s.awaitMetric(`portolan_leader{job="server"}`, "1")
	return s
}

func aHealthyMesh(t *testing.T, s *scrapes) {
	server := startLeading(t, serverOptions{})
	client := xdstest.Dial(t, server.xds, xdstest.ClientOptions{Node: xdstest.NewNode("sidecar", "10.8.0.1", "web", "shop", nil), Variant: protocol.Delta, Follow: true})
	client.Subscribe(xdstest.ClusterType)
	client.Subscribe(xdstest.ListenerType)
	for i := range 3 {
		server.awaitSynced(server.apply(ship("shop", fmt.Sprintf("s%d", i), "10.0.0.1")), "web")
		s.take("cp-1", server)
	}
	s.expect(nil)
}

func aKilledServer(t *testing.T, s *scrapes) {
	server := startLeading(t, serverOptions{})
	s.take("cp-1", server)
	server.kill()
	s.take("cp-1", server)
	s.expect(map[string][]string{"PortolanServerDown": {`{job="portolan",instance="cp-1"}`}})
}

func anEtcdThatIsGone(t *testing.T, s *scrapes) {
	e := startEtcdProcess(t)
	server := e.server()
	s.take("cp-1", server)
	e.process.Kill()
	server.awaitMetric("portolan_store_up", "0")
	server.awaitMetric("portolan_store_reachable", "0")
	s.take("cp-1", server)
	s.expect(map[string][]string{"PortolanStoreDown": {`{instance="cp-1"}`}, "PortolanStoreUnreachable": {`{instance="cp-1"}`}}, "PortolanNoLeader")
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

func aDirectoryAtFault(t *testing.T, s *scrapes) {
	dir := newConfigDir(t, map[string]string{"a.yaml": ship("shop", "a", "10.0.0.1")})
	server := startLeading(t, serverOptions{args: []string{"--config-dir", dir.path}})
	s.take("cp-1", server)
	dir.write("a.yaml", "apiVersion: [")
	server.awaitMetric("portolan_config_dir_broken{dir=\""+dir.path+"\"}", "1")
	s.take("cp-1", server)
	s.expect(map[string][]string{"PortolanDirectoryBroken": {fmt.Sprintf(`{dir="%s",instance="cp-1"}`, dir.path)}})
}

func aDirectoryThatIsGone(t *testing.T, s *scrapes) {
	dir := newConfigDir(t, map[string]string{"a.yaml": ship("shop", "a", "10.0.0.1")})
	server := startLeading(t, serverOptions{args: []string{"--config-dir", dir.path}})
	s.take("cp-1", server)
	if err := os.Rename(dir.path, dir.path+".away"); err != nil {
		t.Fatal(err)
	}
	server.awaitMetric(fmt.Sprintf("portolan_source_degraded{source=%q}", dir.path), "1")
	s.take("cp-1", server)
	s.expect(map[string][]string{"PortolanSourceDegraded": {fmt.Sprintf(`{source="%s",instance="cp-1"}`, dir.path)}})
}

func aListAtFault(t *testing.T, s *scrapes) {
	file := write(t, "targets.json", `[{"targets": ["10.0.0.1:80"], "labels": {"portolan_service": "web"}}]`)
	server := startLeading(t, serverOptions{args: []string{"--endpoints-file", file}})
	s.take("cp-1", server)
	if err := os.WriteFile(file, []byte("["), 0o600); err != nil {
		t.Fatal(err)
	}
	server.awaitMetric(fmt.Sprintf("portolan_endpoint_file_up{file=%q}", file), "0")
	s.take("cp-1", server)
	s.expect(map[string][]string{"PortolanEndpointFileUnreadable": {fmt.Sprintf(`{file="%s",instance="cp-1"}`, file)}})
}

func aConsulThatIsGone(t *testing.T, s *scrapes) {
	consul := startConsul(t, consulOptions{})
	server := startLeading(t, serverOptions{args: []string{"--consul-address", consul.url}})
	server.awaitMetric(`portolan_consul_state{datacenter="local",state="synced"}`, "1")
	s.take("cp-1", server)
	consul.process.kill()
	server.awaitMetric(`portolan_consul_degraded{datacenter="local"}`, "1")
	s.take("cp-1", server)
	s.expect(map[string][]string{"PortolanConsulDegraded": {`{datacenter="local",instance="cp-1"}`}})
}

// endingCertificates: the authority is of a test and lives for a day, and a certificate of a
// gateway for an hour.
func endingCertificates(t *testing.T, s *scrapes) {
	plain := startLeading(t, serverOptions{})
	s.take("cp-1", plain)
	plain.kill()
	authority := securetest.New(t, "root")
	root := write(t, "root.pem", string(authority.Cert))
	server := startLeading(t, serverOptions{args: []string{"--ca-cert", root, "--ca-root", root, "--ca-key", write(t, "key.pem", string(authority.Key))}})
	server.apply(tlsSecret("door", secrettest.New(t, time.Hour, "door.example")))
	eventually(t, "the metrics have the certificate", func() error {
		if text, err := server.get("/metrics", nil); err != nil || !strings.Contains(string(text), "\nportolan_certificate_expiry_seconds{") {
			return fmt.Errorf("they do not: %v", err)
		}
		return nil
	})
	s.take("cp-1", server)
	s.expect(map[string][]string{
		"PortolanAuthorityExpires": {`{certificate="root",instance="cp-1"}`, `{certificate="signing",instance="cp-1"}`},
		"PortolanSecretExpires":    {`{namespace="shop",name="door",entry="tls.crt",instance="cp-1"}`},
	})
}

// aRefusingProxy refuses clusters. The listeners that lead to them are sent all the same in the
// end.
func aRefusingProxy(t *testing.T, s *scrapes) {
	server := startLeading(t, serverOptions{})
	s.take("cp-1", server)
	client := xdstest.Dial(t, server.xds, xdstest.ClientOptions{
		Node: xdstest.NewNode("sidecar", "10.8.0.1", "web", "shop", nil), Variant: protocol.StateOfTheWorld, Follow: true,
		Refuse: func(a *xdstest.Answer) string {
			if a.TypeURL == xdstest.ClusterType {
				return "no clusters today"
			}
			return ""
		},
	})
	client.Subscribe(xdstest.ClusterType)
	client.Subscribe(xdstest.ListenerType)
	server.apply(ship("shop", "a", "10.0.0.1"))
	late := ""
	eventually(t, "something comes without its clusters", func() error {
		text, err := server.get("/metrics", nil)
		if err != nil {
			return err
		}
		m := regexp.MustCompile(`(?m)^portolan_xds_late_clusters_total\{type="([A-Z]+)"\} [1-9]`).FindAllStringSubmatch(string(text), -1)
		if len(m) == 0 {
			return errors.New("nothing does")
		}
		late = m[0][1]
		return nil
	})
	s.take("cp-1", server)
	s.expect(map[string][]string{"PortolanRefusals": {`{type="CDS",instance="cp-1"}`}, "PortolanLateClusters": {fmt.Sprintf(`{type="%s",instance="cp-1"}`, late)}})
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

func differentFiles(t *testing.T, s *scrapes) {
	dir := newConfigDir(t, map[string]string{"a.yaml": ship("shop", "a", "10.0.0.1")})
	at := startEtcd(t)
	one := startLeading(t, serverOptions{etcd: at, args: []string{"--config-dir", dir.path}})
	s.take("cp-1", one)
	startServer(t, serverOptions{etcd: at})
	one.awaitMetric(fmt.Sprintf("portolan_source_differing_servers{source=%q}", dir.path), "1")
	s.take("cp-1", one)
	s.expect(map[string][]string{"PortolanSourceDiffers": {fmt.Sprintf(`{source="%s",instance="cp-1"}`, dir.path)}})
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

func aServerWithoutTheKey(t *testing.T, s *scrapes) {
	at, dir := startEtcd(t), t.TempDir()
	one := startLeading(t, serverOptions{etcd: at, args: []string{"--api-socket", filepath.Join(dir, "one.sock"), "--sealing-key", filepath.Join(dir, "one.key")}})
	one.must("", "ca", "init")
	server := startServer(t, serverOptions{etcd: at})
	s.take("cp-1", server)
	token := strings.TrimSpace(one.must("", "token", "create", "-n", "shop", "--service-account", "web"))
	eventually(t, "the server knows the token", func() error {
		server.try("", "certificate", "request", "--out", filepath.Join(dir, "machine"), "--token", token)
		if n := server.counters("portolan_certificates_refused_total", "reason")["unavailable"]; n == 0 {
			return errors.New("it does not")
		}
		return nil
	})
	s.take("cp-1", server)
	s.expect(map[string][]string{"PortolanCertificatesUnavailable": {`{reason="unavailable",instance="cp-1"}`}}, "PortolanNoLeader") // the first server leads
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
