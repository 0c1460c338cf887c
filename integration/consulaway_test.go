package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/consul"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// awayScene is a Consul with two instances of a service, which a server has saved, and a
// ServiceEntry.
type awayScene struct {
	*consulScene
	one, two, three *upstream
	entry           request // answered by the ServiceEntry's endpoint
}

func startAwayScene(t *testing.T, args ...string) *awayScene {
	t.Helper()
	needEnvoy(t)
	a := &awayScene{consulScene: &consulScene{t: t, agent: startConsul(t, consulOptions{}), port: freePort(t)}}
	a.one, a.two, a.three = startUpstream(t, "one"), startUpstream(t, "two"), startUpstream(t, "three")
	a.agent.register("shop", "one", a.one, a.port)
	a.agent.register("shop", "two", a.two, a.port)
	a.server = startServer(t, serverOptions{args: append([]string{"--consul-address", a.agent.url, "--log-level", "debug"}, args...)})
	a.entry = request{port: a.port, host: "entry.test"}
	a.apply(fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: entry, namespace: shop}
spec:
  hosts: [entry.test]
  location: MESH_INTERNAL
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1, ports: {http: $target}}]
`, "$port", a.port, "$target", a.three.port))
	a.awaitSaved(2)
	return a
}

// awaitSaved waits until the server has saved so many instances of Consul. It finds that in the
// log, with level debug.
func (s *server) awaitSaved(instances int) {
	s.t.Helper()
	eventually(s.t, "what Consul has is saved", func() error {
		if log := s.process.output(); !strings.Contains(log, fmt.Sprintf(`msg="what a source has is saved" source=consul/_/_ items=%d`, instances)) {
			return fmt.Errorf("it is not logged")
		}
		return nil
	})
}

// restart ends the server, calls harm, starts it again, and returns how long it takes to be
// ready.
func (a *awayScene) restart(harm func()) time.Duration {
	a.t.Helper()
	if err := a.process.terminate(a.t); err != nil {
		a.t.Fatal(err)
	}
	harm()
	began := time.Now()
	a.start()
	took := time.Since(began)
	a.t.Logf("ready after %s", took.Round(time.Millisecond))
	return took
}

// awaitBoth waits until a new proxy has both Consul's service and the ServiceEntry.
func (a *awayScene) awaitBoth(name string) {
	a.t.Helper()
	e := a.startEnvoy(envoyOptions{kind: "sidecar", name: name, variant: protocol.Delta, ip: "10.0.0.9"})
	a.answered(name, "one", "two")
	awaitReply(a.t, a.entry, "three")
	e.expectNothingRejected()
	e.process.kill()
}

// TestConsulAwayAtStart: a server that starts while Consul is down, or hangs, serves new
// proxies what it last knew of Consul. When Consul is back, it continues from there.
func TestConsulAwayAtStart(t *testing.T) {
	t.Parallel()
	a := startAwayScene(t)
	a.restart(a.agent.process.kill)
	a.awaitBoth("down")
	a.awaitDegraded("what was known of it at 20")
	if s := a.consulStatus(); s.State != consul.StateDegraded || s.LastKnown == nil {
		t.Errorf("%+v", s)
	}
	a.agent.start()
	a.awaitDegraded("")
	a.agent.register("shop", "one", a.one, a.port)
	a.agent.register("shop", "two", a.two, a.port)

	if took := a.restart(a.agent.process.Pause); late(took, 15*time.Second) {
		t.Errorf("with a Consul that hangs the server is ready after %s", took)
	}
	a.awaitDegraded("what was known of it at 20")
	a.awaitBoth("hangs")
	a.agent.process.Resume()
	a.awaitDegraded("")
	a.agent.deregister("two")
	e := a.startEnvoy(envoyOptions{kind: "sidecar", name: "after", variant: protocol.Delta})
	a.answered("Consul is back", "one")
	e.expectNothingRejected()
}

// TestConsulIsSavedAtTheStop: a server that is told to stop saves the last content of Consul,
// however soon after the previous save. The next server serves that and says so.
func TestConsulIsSavedAtTheStop(t *testing.T) {
	t.Parallel()
	a := startAwayScene(t)
	a.agent.register("shop", "four", a.three, a.port)
	eventually(t, "the server knows the third instance", func() error {
		if n := a.consulStatus().Instances; n != 3 {
			return fmt.Errorf("it knows %d", n)
		}
		return nil
	})
	if out := a.must("", "store", "status"); !strings.Contains(out, "Consul/local: live, 1 service\n") || !strings.Contains(out, "ServiceEntry: live, 1 service\n") {
		t.Errorf("status:\n%s", out)
	}
	a.restart(a.agent.process.kill)
	if n := a.consulStatus().Instances; n != 3 {
		t.Errorf("%d instances were saved, and there were 3", n)
	}
	a.awaitDegraded("what was known of it at 20")
	if out := a.try("", "store", "status"); out.code != 1 || !strings.Contains(out.stdout, "Consul/local: as last known ") || !strings.Contains(out.stdout, "! registry Consul/local: ") {
		t.Errorf("status: %d\n%s", out.code, out.stdout)
	}
}

// TestConsulHangs: the server detects within ten seconds that Consul accepts requests and
// answers none. It removes nothing.
func TestConsulHangs(t *testing.T) {
	t.Parallel()
	a := startAwayScene(t)
	a.envoy = a.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: protocol.Delta})
	a.answered("before", "one", "two")
	l := startLoad(t, "sidecar", a.request())
	a.agent.process.Pause()
	began := time.Now()
	a.awaitDegraded("Consul cannot be read")
	if took := time.Since(began); late(took, 10*time.Second) {
		t.Errorf("it is noticed after %s", took)
	} else {
		t.Logf("it is noticed after %s", took.Round(time.Millisecond))
	}
	a.answered("it hangs", "one", "two")
	a.agent.process.Resume()
	a.awaitDegraded("")
	l.expectUnharmed()
	a.agent.deregister("two")
	a.answered("it goes on", "one")
}

// TestConsulEmptyAtStart: a server that starts on a Consul which lost its data serves what it
// last knew for a time, and then believes Consul.
func TestConsulEmptyAtStart(t *testing.T) {
	t.Parallel()
	a := startAwayScene(t, "--consul-reset-hold", "10s")
	a.restart(func() {
		a.agent.process.kill()
		a.agent.must(os.RemoveAll(dataOf(t, a.agent)))
		a.agent.start()
	})
	e := a.startEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: protocol.Delta})
	a.answered("an empty Consul", "one", "two")
	a.awaitDegraded("lost its data; 2 instances")
	a.agent.register("shop", "two", a.two, a.port)
	a.answered("what did not come back is gone", "two")
	a.awaitDegraded("")
	awaitReply(t, a.entry, "three")
	e.expectNothingRejected()
}

// TestConsulSnapshotRestored restores a snapshot of Consul, which breaks no connection.
// Instances registered after the snapshot are kept, though Consul no longer lists them.
func TestConsulSnapshotRestored(t *testing.T) {
	t.Parallel()
	for plan, limit := range map[string]int{"service": 0, "node": 12} {
		t.Run(plan, func(t *testing.T) {
			c := startConsul(t, consulOptions{})
			c.catalogue(10, 3)
			content, _, err := c.Snapshot().Save(nil)
			c.must(err)
			snapshot, err := io.ReadAll(content)
			c.must(errors.Join(err, content.Close()))
			c.catalogue(30, 3)
			r, _, _ := c.follow(limit)
			status := func() consul.DatacenterStatus { return r.Status().Datacenters[0] }
			eventually(t, "all is read", func() error {
				if got := status(); !got.Whole || got.Instances != 30 {
					return fmt.Errorf("%+v", got)
				}
				return r.Ready()
			})
			if by := status().By; by != plan {
				t.Fatalf("it is followed by %s", by)
			}
			c.must(c.Snapshot().Restore(nil, bytes.NewReader(snapshot)))
			eventually(t, "that data is lost is seen", func() error {
				if got := status(); got.Kept != 20 || got.Instances != 30 {
					return fmt.Errorf("%+v", got)
				}
				return nil
			})
		})
	}
}
