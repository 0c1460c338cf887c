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
		"a server without the sealing key": aServerWithoutTheKey, "a small disk": aSmallDisk, "no address left": noAddressLeft,
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

func noAddressLeft(t *testing.T, s *scrapes) {
	server := startLeading(t, serverOptions{args: []string{"--auto-address-ipv4", "10.9.0.0/30"}})
	s.take("cp-1", server)
	for i := range 6 {
		server.try(fill(addressed, "$name", fmt.Sprintf("s%d", i), "$port", 5432, "$target", 1), "apply", "-f", "-")
	}
	if err := server.process.terminate(t); err != nil {
		t.Fatal(err)
	}
	server.start() // the leader looks at once, and then every half minute
	eventually(t, "hosts lack an address", func() error {
		if metric(t, server, "portolan_hosts_without_address") == 0 {
			return errors.New("none does")
		}
		return nil
	})
	server.awaitMetric(`portolan_leader{job="server"}`, "1")
	s.take("cp-1", server)
	s.expect(map[string][]string{"PortolanHostsWithoutAddress": {`{instance="cp-1"}`}})
}
