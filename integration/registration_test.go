package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// groupWeb is a service of the machines of a group.
type groupWeb struct {
	port int
	at   *upstream // the application on each machine
}

func newGroupWeb(t testing.TB) *groupWeb {
	return &groupWeb{port: freePort(t), at: startUpstream(t, "here")}
}

func (m *groupWeb) group() string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: web, namespace: shop}
spec:
  metadata: {labels: {app: web}}
  template: {serviceAccount: web, ports: {http: $port}}
`, "$port", m.at.port)
}

func (m *groupWeb) service() string { return webService(m.port) }

// webService is the service of workloads with the label app=web.
func webService(port int) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  workloadSelector: {labels: {app: web}}
`, "$port", port)
}

func (m *groupWeb) request() request { return request{port: m.port, host: "web.shop.test"} }

// machineOf is the Envoy of a machine whose application is the upstream.
func machineOf(name string) envoyOptions {
	return envoyOptions{kind: "sidecar", name: name, ip: "127.0.0.1", group: "web", variant: protocol.Delta}
}

// registeredEntry is the part of a WorkloadEntry that tests look at.
type registeredEntry struct {
	Metadata struct {
		UID         string            `json:"uid"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Weight int `json:"weight"`
	} `json:"spec"`
}

// entryOf returns the entry of the group web for an address; nil if there is none.
func (s *server) entryOf(address string) *registeredEntry {
	s.t.Helper()
	out := s.try("", "get", "workloadentry/web-"+address, "-n", "shop", "-o", "json")
	if out.code != 0 {
		if !strings.Contains(out.stderr, "not found") {
			s.t.Errorf("get the entry: %+v", out)
		}
		return nil
	}
	entry := &registeredEntry{}
	if err := json.Unmarshal([]byte(out.stdout), entry); err != nil {
		s.t.Fatal(err)
	}
	return entry
}

// awaitEntry waits until the entry of an address is there, or gone, and returns how long it took.
func (s *server) awaitEntry(address string, there bool) time.Duration {
	s.t.Helper()
	began := time.Now()
	eventually(s.t, fmt.Sprintf("the entry of %s: there %v", address, there), func() error {
		if got := s.entryOf(address) != nil; got != there {
			return fmt.Errorf("it is there: %v", got)
		}
		return nil
	})
	return time.Since(began)
}

// TestAMachineIsRegisteredWhileItIsConnected: an Envoy that names a group becomes an endpoint. It
// stays one while its server is killed and it goes to another. When the Envoy is killed, the
// endpoint is gone after the TTL, and the history says why.
func TestAMachineIsRegisteredWhileItIsConnected(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	etcd, m := startEtcd(t), newGroupWeb(t)
	one, two := startServer(t, serverOptions{etcd: etcd}), startServer(t, serverOptions{etcd: etcd})
	two.apply(m.group(), m.service())
	both := one.xds + "," + two.xds
	client := two.launchEnvoy(envoyOptions{kind: "sidecar", name: "client", ip: "10.0.0.9", xds: both, variant: protocol.Delta})
	awaitReply(t, m.request(), "503")
	o := machineOf("vm")
	o.xds = both
	vm := one.launchEnvoy(o)
	awaitReply(t, m.request(), "here")
	first := two.entryOf("127.0.0.1")
	if first == nil || first.Metadata.Annotations["portolan.io/registered-node"] != "sidecar~127.0.0.1~vm.shop~shop.svc.cluster.local" {
		t.Fatalf("the entry is %+v", first)
	}

	// The server of the stream dies; the entry never goes.
	if strings.Contains(first.Metadata.Annotations["istio.io/workloadController"], fmt.Sprintf(":%d/", two.process.pid())) {
		one, two = two, one
	}
	var gone atomic.Int32
	stop, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				if two.entryOf("127.0.0.1") == nil {
					gone.Add(1)
				}
			}
		}
	}()
	killed := time.Now()
	one.kill()
	eventually(t, "the other server has the entry", func() error {
		e := two.entryOf("127.0.0.1")
		if e == nil || e.Metadata.Annotations["istio.io/workloadController"] == first.Metadata.Annotations["istio.io/workloadController"] {
			return fmt.Errorf("it is %+v", e)
		}
		return nil
	})
	t.Logf("taken over %v after the server was killed", time.Since(killed).Round(time.Millisecond))
	time.Sleep(time.Until(killed.Add(storage.DefaultLease + 2*time.Second))) // the lease of the dead server ends
	close(stop)
	<-watched
	if n := gone.Load(); n > 0 {
		t.Errorf("the entry was gone %d times", n)
	}
	if e := two.entryOf("127.0.0.1"); e == nil || e.Metadata.UID != first.Metadata.UID {
		t.Errorf("the entry is %+v, and was %+v", e, first)
	}
	awaitReply(t, m.request(), "here")

	died := time.Now()
	vm.process.kill()
	two.awaitEntry("127.0.0.1", false)
	took := time.Since(died)
	t.Logf("gone %v after the Envoy was killed", took.Round(time.Millisecond))
	if took < storage.DefaultLease/2 || took > storage.DefaultLease {
		t.Errorf("the entry was gone after %v", took)
	}
	awaitReply(t, m.request(), "503")
	eventually(t, "the history says why", func() error {
		if out := two.must("", "history", "workloadentry/web-127.0.0.1", "-n", "shop"); !strings.Contains(out, storage.LeaseEnded) {
			return errors.New(out)
		}
		return nil
	})
	if n := two.counter("portolan_registrations_expired_total"); n != 1 {
		t.Errorf("%d entries expired, by the metric of the server that leads", n)
	}
	client.expectNothingRejected()
}

// TestRegistrationsFollowGroupsAndPeople: an entry that a person deletes comes back, and so does
// that of a group which was deleted and restored. What a person edits stays until the group changes.
func TestRegistrationsFollowGroupsAndPeople(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	m, s := newGroupWeb(t), startServer(t, serverOptions{})
	s.apply(m.service())
	s.launchEnvoy(machineOf("vm"))
	eventually(t, "the machine waits for its group", func() error {
		if !strings.Contains(s.process.output(), "a proxy waits for its registration") {
			return errors.New("the log does not say so")
		}
		return nil
	})
	s.apply(m.group())
	t.Logf("registered %v after its group came", s.awaitEntry("127.0.0.1", true).Round(time.Millisecond))
	first := s.entryOf("127.0.0.1")
	s.apply(strings.Replace(s.must("", "get", "workloadentry/web-127.0.0.1", "-n", "shop", "-o", "yaml"), "\nspec:\n", "\nspec:\n  weight: 7\n", 1))
	if e := s.entryOf("127.0.0.1"); e == nil || e.Spec.Weight != 7 {
		t.Errorf("after an edit the entry is %+v", e)
	}
	s.apply(strings.Replace(m.group(), "{app: web}", "{app: web, tier: front}", 1))
	eventually(t, "the group overwrites the edit", func() error {
		if e := s.entryOf("127.0.0.1"); e == nil || e.Spec.Weight != 0 {
			return fmt.Errorf("the entry is %+v", e)
		}
		return nil
	})
	s.must("", "delete", "workloadentry/web-127.0.0.1", "-n", "shop", "--yes")
	began := time.Now()
	eventually(t, "the entry comes back", func() error {
		if e := s.entryOf("127.0.0.1"); e == nil || e.Metadata.UID == first.Metadata.UID {
			return fmt.Errorf("it is %+v", e)
		}
		return nil
	})
	t.Logf("back %v after a person deleted it", time.Since(began).Round(time.Millisecond))
	s.remove(m.group())
	t.Logf("gone %v after its group", s.awaitEntry("127.0.0.1", false).Round(time.Millisecond))
	s.apply(m.group())
	back := s.awaitEntry("127.0.0.1", true)
	t.Logf("back %v after its group", back.Round(time.Millisecond))
	if late(back, time.Second) {
		t.Errorf("the entry is back %v after its group", back)
	}
	if out := s.must("", "describe", "workloadgroup", "web", "-n", "shop"); !strings.Contains(out, "REGISTERED") || !strings.Contains(out, "web-127.0.0.1") {
		t.Errorf("describe says\n%s", out)
	}
	if out := s.must("", "get", "workloadentries", "-n", "shop"); !strings.Contains(out, "REGISTERED-BY") || !strings.Contains(out, "vm.shop") {
		t.Errorf("get says\n%s", out)
	}
}

// TestTwoMachinesWithOneAddress: the second is refused, the group says so and names the first, and
// the second takes its place when the first has gone.
func TestTwoMachinesWithOneAddress(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	m, s := newGroupWeb(t), startServer(t, serverOptions{})
	s.apply(m.group())
	first := s.launchEnvoy(machineOf("first"))
	s.awaitEntry("127.0.0.1", true)
	s.launchEnvoy(machineOf("second"))
	s.awaitFinding("the proxy sidecar~127.0.0.1~second.shop~shop.svc.cluster.local is not registered: workloadentry/shop/web-127.0.0.1 is registered by the proxy sidecar~127.0.0.1~first.shop~")
	first.process.kill()
	eventually(t, "the second has taken its place", func() error {
		if e := s.entryOf("127.0.0.1"); e == nil || !strings.Contains(e.Metadata.Annotations["portolan.io/registered-node"], "second") {
			return fmt.Errorf("the entry is %+v", e)
		}
		return nil
	})
	eventually(t, "the group says nothing more", func() error {
		if out := s.must("", "describe", "workloadgroup", "web", "-n", "shop"); strings.Contains(out, "PTL0231") {
			return errors.New(out)
		}
		return nil
	})
}

// awaitFinding waits until the group web has a finding that it refused a proxy.
func (s *server) awaitFinding(text string) {
	s.t.Helper()
	eventually(s.t, "the group says who was refused", func() error {
		out := s.try("", "describe", "workloadgroup", "web", "-n", "shop", "-o", "json")
		if !strings.Contains(out.stdout, "PTL0231") || !strings.Contains(out.stdout, text) {
			return fmt.Errorf("it says %+v", out)
		}
		return nil
	})
}

// TestAMachineOfAnotherAccountIsRefused: a machine is registered in a group by the service account
// that it has proved. Another account is refused, and a machine that has proved none.
func TestAMachineOfAnotherAccountIsRefused(t *testing.T) {
	t.Parallel()
	needEnvoy(t)
	m, s := newGroupWeb(t), startSecureServer(t, serverOptions{})
	s.apply(m.group())
	web, db := s.workload(t, webIdentity, time.Hour), s.workload(t, strings.Replace(webIdentity, "/sa/web", "/sa/db", 1), time.Hour)
	start := func(name, ip string, mutate func(*envoyOptions)) {
		o := machineOf(name)
		o.ip = ip
		mutate(&o)
		s.launchEnvoy(o)
	}
	start("right", "10.0.0.1", func(o *envoyOptions) { o.xds, o.tls = s.secureXDS, &web })
	start("wrong", "10.0.0.2", func(o *envoyOptions) { o.xds, o.tls = s.secureXDS, &db })
	start("plain", "10.0.0.3", func(*envoyOptions) {})
	s.awaitEntry("10.0.0.1", true)
	s.awaitFinding("wrong.shop~shop.svc.cluster.local is not registered: its identity is spiffe://")
	s.awaitFinding("plain.shop~shop.svc.cluster.local is not registered: it has proved no identity")
	for _, ip := range []string{"10.0.0.2", "10.0.0.3"} {
		if e := s.entryOf(ip); e != nil {
			t.Errorf("%s has an entry: %+v", ip, e)
		}
	}
}
