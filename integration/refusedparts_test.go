package integration

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	endpointv3 "github.com/envoyproxy/go-control-plane/envoy/config/endpoint/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	matcherv3 "github.com/envoyproxy/go-control-plane/envoy/type/matcher/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/catalogue"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// harm makes a resource of a type invalid for Envoy, though the API accepts the objects behind
// it.
type harm struct {
	typ, name string
	do        func(proto.Message) proto.Message
	port      int    // of the service whose resource it is done to
	more      string // documents that it needs
}

// spoil returns a function that changes a copy of a message.
func spoil[M proto.Message](change func(M)) func(proto.Message) proto.Message {
	return func(message proto.Message) proto.Message {
		m := proto.Clone(message).(M)
		change(m)
		return m
	}
}

// unknownExtension returns the configuration of an extension that no Envoy has.
func unknownExtension() *anypb.Any {
	return &anypb.Any{TypeUrl: "type.googleapis.com/portolan.test.Unknown"}
}

// otherType replaces a resource by one of another type. Envoy checks the types before it looks
// at any resource of a response.
func otherType(proto.Message) proto.Message { return wrapperspb.String("what is this?") }

// takenAddress is an address where no listener can be; see partRefusals.
const takenAddress = "127.0.0.2"

func harms(taken int) []harm {
	return []harm{
		{typ: "CDS", name: "extension", do: spoil(func(c *clusterv3.Cluster) {
			c.TypedExtensionProtocolOptions = map[string]*anypb.Any{"portolan.test.unknown": unknownExtension()}
		})},
		{typ: "EDS", name: "weights", do: spoil(func(a *endpointv3.ClusterLoadAssignment) {
			one := a.Endpoints[0].LbEndpoints[0]
			one.LoadBalancingWeight = wrapperspb.UInt32(1<<32 - 1)
			two := proto.Clone(one).(*endpointv3.LbEndpoint)
			two.GetEndpoint().GetAddress().GetSocketAddress().Address = "127.0.0.99"
			a.Endpoints[0].LbEndpoints = append(a.Endpoints[0].LbEndpoints, two)
		}), more: `
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: guilty-eds-weights, namespace: shop}
spec: {host: guilty-eds-weights.test, trafficPolicy: {loadBalancer: {consistentHash: {httpHeaderName: x-user}}}}
`},
		{typ: "LDS", name: "taken", do: spoil(func(l *listenerv3.Listener) {
			at := l.GetAddress().GetSocketAddress()
			at.Address = takenAddress
			at.PortSpecifier = &corev3.SocketAddress_PortValue{PortValue: uint32(taken)}
		})},
		{typ: "VHDS", name: "regex", do: spoil(func(h *routev3.VirtualHost) {
			h.Routes[0].Match.PathSpecifier = &routev3.RouteMatch_SafeRegex{SafeRegex: &matcherv3.RegexMatcher{Regex: "a(b"}}
		})},
		{typ: "CDS", name: "type", do: otherType},
		{typ: "EDS", name: "address", do: spoil(func(a *endpointv3.ClusterLoadAssignment) {
			a.Endpoints[0].LbEndpoints[0].GetEndpoint().GetAddress().GetSocketAddress().Address = "no.address"
		})},
		{typ: "EDS", name: "type", do: otherType},
		{typ: "LDS", name: "filter", do: spoil(func(l *listenerv3.Listener) {
			l.ListenerFilters = append(l.ListenerFilters, &listenerv3.ListenerFilter{
				Name: "portolan.test.unknown", ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: unknownExtension()},
			})
		})},
		{typ: "LDS", name: "type", do: otherType},
		{typ: "VHDS", name: "domain", do: spoil(func(h *routev3.VirtualHost) { h.Domains = append(h.Domains, h.Domains[0]) })},
	}
}

// spoiler is a patch that spoils resources of a type.
type spoiler struct {
	harms []harm
	typ   string
}

func (p spoiler) Affected(*mesh.View, mesh.Delta) iter.Seq[string] { return func(func(string) bool) {} }

func (p spoiler) Apply(_ *mesh.View, name string, message proto.Message, needs []resource.Need) (proto.Message, []resource.Need, error) {
	if message == nil {
		return nil, nil, nil
	}
	for _, h := range p.harms {
		if h.typ != p.typ || !strings.Contains(name, h.host()) && !strings.HasSuffix(name, fmt.Sprint("_", h.port)) {
			continue
		}
		return h.do(message), needs, nil
	}
	return message, needs, nil
}

// spoilt returns the served types, with a spoiler for each harm.
func spoilt(harms []harm) []generate.ResourceType {
	types := catalogue.Types()
	for i, t := range types {
		types[i] = t.Patched(spoiler{harms, t.Name})
	}
	return types
}

// host is the host of the service whose resource is spoilt, and object the name of the object
// behind it.
func (h harm) host() string   { return h.object() + ".test" }
func (h harm) object() string { return strings.ToLower("guilty-" + h.typ + "-" + h.name) }

// inType returns the type of the response in which an Envoy gets the spoilt resource.
func (h harm) inType(v protocol.Variant) string {
	if h.typ == "VHDS" && v == protocol.StateOfTheWorld {
		return "RDS"
	}
	return h.typ
}

// httpService is a service with one endpoint, on a port of its own. Its proxies answer for it.
func httpService(name string, port int, endpoint, reply string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.test]
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints: [{address: $endpoint, ports: {http: 7}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$name.test]
  http: [{directResponse: {status: 200, body: {string: $reply}}}]
`, "$name", name, "$port", port, "$endpoint", endpoint, "$reply", reply)
}

// suspects has a hundred innocent services and the guilty ones, on a server in this process.
type suspects struct {
	t         *testing.T
	variant   protocol.Variant
	server    *xdstest.Server
	envoy     *envoy
	log       *lines
	harms     []harm
	innocents []int // their ports
	form      int   // of the innocents
}

const patienceOfInnocents = 15 * time.Second

// TestEnvoyRefusesSomeAmongMany: real Envoys reject resources of each type, in each known way,
// among a hundred unrelated services. The unrelated ones arrive within five seconds: at first,
// and with a change of them, whether the guilty ones were there before or not. Each rejected
// resource is reported with its object, in the status and once in the log, until its object is
// deleted.
func TestEnvoyRefusesSomeAmongMany(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		taken, err := net.Listen("tcp", takenAddress+":0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = taken.Close() })
		c := &suspects{t: t, variant: v, log: &lines{}, harms: harms(taken.Addr().(*net.TCPAddr).Port)}
		for range 100 {
			c.innocents = append(c.innocents, freePort(t))
		}
		for i := range c.harms {
			c.harms[i].port = freePort(t)
		}
		c.server = xdstest.NewServer(t, spoilt(c.harms), func(o *xds.Options) { o.Logger = slog.New(slog.NewTextHandler(c.log, nil)) })
		c.server.Apply(c.documents(true)...)
		client := &server{t: t, xds: c.server.Address, client: clientOf(t)}
		c.envoy = client.launchEnvoy(envoyOptions{kind: "sidecar", name: "client", variant: v})
		eventually(t, "the Envoy is connected", func() error {
			if len(c.server.XDS.Proxies()) == 0 {
				return fmt.Errorf("no proxy is connected: %s", c.envoy.process.tail())
			}
			return nil
		})
		c.awaitInnocents("at first")
		c.awaitRefused("at first", c.harms)

		c.server.Apply(c.documents(false)...)
		c.awaitInnocents("with a change of theirs alone")
		c.awaitRefused("then", c.harms)

		c.server.Delete(c.causes()...)
		c.awaitRefused("without the cause", nil)

		c.server.Apply(c.documents(true)...)
		c.awaitInnocents("with a change")
		c.awaitRefused("with a change", c.harms)
		for _, h := range c.harms {
			if n := c.log.count("proxy refuses a resource", "/"+h.object()); n != 2 {
				t.Errorf("%s was logged %d times, and came to be refused twice", h.object(), n)
			}
		}
	})
}

// documents returns the next version of the innocents and, with guilty, the guilty ones.
func (c *suspects) documents(guilty bool) []string {
	c.form++
	var out []string
	for i, port := range c.innocents {
		out = append(out, httpService(fmt.Sprintf("innocent-%d", i), port, c.endpoint(), fmt.Sprintf("form-%d", c.form)))
	}
	if guilty {
		out = append(out, c.causes()...)
	}
	return out
}

func (c *suspects) endpoint() string { return fmt.Sprintf("127.1.0.%d", c.form) }

func (c *suspects) causes() []string {
	var out []string
	for _, h := range c.harms {
		out = append(out, httpService(h.object(), h.port, "127.0.0.98", "guilty"))
		if h.more != "" {
			out = append(out, h.more)
		}
	}
	return out
}

// awaitInnocents waits until the Envoy has and uses the newest version of all innocents.
func (c *suspects) awaitInnocents(when string) {
	c.t.Helper()
	began := time.Now()
	for {
		err := c.lacks()
		passed := time.Since(began)
		if err == nil {
			c.t.Logf("%s: the innocents arrived within %s", when, passed)
			return
		}
		if passed > patienceOfInnocents {
			c.t.Fatalf("%s: not within %s: %v\n%+v", when, patienceOfInnocents, err, c.server.XDS.Proxies())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lacks says what the Envoy lacks of the innocents.
func (c *suspects) lacks() error {
	clusters, err := c.envoy.get("/clusters")
	if err != nil {
		return err
	}
	for i, port := range c.innocents {
		host := fmt.Sprintf("innocent-%d.test", i)
		if line := fmt.Sprintf("outbound|%d||%s::%s:7::", port, host, c.endpoint()); !bytes.Contains(clusters, []byte(line)) {
			return fmt.Errorf("it has no endpoint %s", line)
		}
	}
	for i, port := range c.innocents {
		ctx, cancel := context.WithTimeout(c.t.Context(), time.Second)
		got, err := do(ctx, c.envoy.client, request{port: port, host: fmt.Sprintf("innocent-%d.test", i)})
		cancel()
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("form-%d", c.form); got.body != want {
			return fmt.Errorf("innocent-%d answers %d %q, not %q", i, got.status, got.body, want)
		}
	}
	return nil
}

// awaitRefused waits until the server reports what the Envoy rejects, and because of which
// objects.
func (c *suspects) awaitRefused(when string, harms []harm) {
	c.t.Helper()
	var want []string
	for _, h := range harms {
		want = append(want, h.inType(c.variant)+" "+h.object())
	}
	slices.Sort(want)
	eventually(c.t, when+": what is refused", func() error {
		var got []string
		for _, typ := range c.server.XDS.Proxies()[0].Types {
			for _, r := range typ.Refused {
				var objects []string
				for _, o := range r.Objects {
					objects = append(objects, path.Base(o)) // a service, and what applies to it
				}
				slices.Sort(objects)
				got = append(got, typ.Name+" "+strings.Join(slices.Compact(objects), " "))
			}
			if typ.State != protocol.Synced && (typ.State != protocol.Rejected || len(typ.Refused) == 0) && typ.State != protocol.NotSent {
				return fmt.Errorf("%+v", typ)
			}
		}
		if slices.Sort(got); !slices.Equal(got, want) {
			return fmt.Errorf("refused is %v, want %v", got, want)
		}
		return nil
	})
}

// lines collects the lines of a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// count returns how many lines contain some words.
func (l *lines) count(words ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for line := range strings.Lines(l.text.String()) {
		if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
			n++
		}
	}
	return n
}
