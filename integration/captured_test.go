package integration

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// capturedServices are services of every kind that gets a listener with traffic capture, and
// some of the workload at 10.0.0.1.
const capturedServices = `
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: web, namespace: shop}
spec:
  hosts: [web.shop.test]
  resolution: STATIC
  ports: [{number: 8080, name: http, protocol: HTTP}, {number: 9090, name: tcp, protocol: TCP}, {number: 7070, name: plain}]
  addresses: [10.9.0.1, 'fd00:9::1']
  endpoints: [{address: 127.0.0.1}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: given, namespace: shop}
spec:
  hosts: [given.shop.test]
  resolution: STATIC
  ports: [{number: 9090, name: tcp, protocol: TCP}]
  endpoints: [{address: 127.0.0.1}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: range, namespace: shop}
spec:
  hosts: [range.shop.test]
  resolution: STATIC
  ports: [{number: 9090, name: tcp, protocol: TCP}, {number: 8080, name: plain}]
  addresses: [10.8.0.0/16, 'fd00:8::/32']
  endpoints: [{address: 127.0.0.1}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: anywhere, namespace: shop}
spec:
  hosts: [anywhere.shop.test]
  resolution: NONE
  ports: [{number: 9090, name: plain}, {number: 8080, name: tcp, protocol: TCP}]
---
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: served, namespace: shop}
spec:
  hosts: [served.shop.test]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP, targetPort: 8081}, {number: 81, name: tcp, protocol: TCP, targetPort: 9091}, {number: 82, name: plain, targetPort: 7071}]
  endpoints: [{address: 10.0.0.1}]
`

// TestEnvoyAcceptsCapture: the real Envoy accepts everything that a sidecar with traffic
// capture gets. A change of a route does not change its listeners.
func TestEnvoyAcceptsCapture(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		out, in := freePort(t), freePort(t)
		s := startServer(t, serverOptions{meshConfig: fmt.Sprintf("{proxyListenPort: %d, proxyInboundListenPort: %d, accessLogFile: /dev/stdout}", out, in)})
		s.apply(capturedServices)
		client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", interception: "REDIRECT", ip: "10.0.0.1,fd00::1", variant: v})
		want := []string{
			"0.0.0.0_80", "0.0.0.0_8080", "0.0.0.0_9090", "10.9.0.1_7070", "10.9.0.1_9090",
			s.givenTo("given") + "_9090", "fd00:9::1_7070", "fd00:9::1_9090", "virtualInbound", "virtualOutbound",
		}
		client.awaitListeners("the listeners of all services", func(have []string) bool {
			return !slices.ContainsFunc(want, func(name string) bool { return !slices.Contains(have, name) })
		})
		client.awaitWarm()
		for _, name := range []string{"inbound|8081||", "inbound|9091||", "inbound|7071||", "InboundPassthroughCluster"} {
			client.awaitCluster(name, true)
		}
		awaitClosedAtOnce(t, out)
		awaitClosedAtOnce(t, in)

		before := listenersOf(client.mustHold())
		s.awaitSynced(s.apply(`
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec: {hosts: [web.shop.test], http: [{directResponse: {status: 418}}]}
`), "client")
		client.awaitConfig("418")
		if after := listenersOf(client.mustHold()); !maps.Equal(before, after) {
			t.Errorf("a route has touched listeners: they were %v and are %v", before, after)
		}
		s.awaitSynced(s.remove(capturedServices), "client")
		client.awaitListeners("the virtual listeners alone", func(have []string) bool {
			return slices.Equal(have, []string{"virtualInbound", "virtualOutbound"})
		})
		s.expectNothingRejected()
		client.expectNothingRejected()
	})
}

// TestEnvoyAcceptsTransparency: with TPROXY the virtual listeners are transparent, which
// requires a privileged Envoy.
func TestEnvoyAcceptsTransparency(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIPPED, AND NOTHING WAS TESTED: a transparent listener needs privileges")
	}
	out, in := freePort(t), freePort(t)
	s := startServer(t, serverOptions{meshConfig: fmt.Sprintf("{proxyListenPort: %d, proxyInboundListenPort: %d}", out, in)})
	s.apply(capturedServices)
	client := s.startEnvoy(envoyOptions{kind: "sidecar", name: "client", interception: "TPROXY"})
	client.awaitListeners("the virtual listeners", func(have []string) bool {
		return slices.Contains(have, "virtualInbound") && slices.Contains(have, "virtualOutbound")
	})
	s.expectNothingRejected()
	client.expectNothingRejected()
}

// listenersOf returns the listeners among an Envoy's resources.
func listenersOf(all map[string]acceptedResource) map[string]acceptedResource {
	out := map[string]acceptedResource{}
	for name, h := range all {
		if l, ok := strings.CutPrefix(name, "listeners "); ok {
			out[l] = h
		}
	}
	return out
}

// awaitListeners waits until right accepts the names of the listeners that an Envoy has from
// its server. Draining listeners do not count.
func (e *envoy) awaitListeners(what string, right func(have []string) bool) {
	e.t.Helper()
	eventually(e.t, e.name+" has "+what, func() error {
		all, err := e.acceptedResources()
		if err != nil {
			return err
		}
		have := listenersOf(all)
		maps.DeleteFunc(have, func(_ string, h acceptedResource) bool { return h.Version == "" }) // it drains
		if names := slices.Sorted(maps.Keys(have)); !right(names) {
			return fmt.Errorf("it has %v", names)
		}
		return nil
	})
}

// awaitClosedAtOnce waits until a port accepts connections and closes them. A virtual listener
// does so with connections to its own port.
func awaitClosedAtOnce(t testing.TB, port int) {
	t.Helper()
	eventually(t, fmt.Sprintf("port %d takes connections and ends them", port), func() error {
		_, err := greeting(t.Context(), port)
		if err == nil {
			return errors.New("it is greeted")
		}
		if !listening(local(port)) {
			return errors.New("it takes none")
		}
		return nil
	})
}
