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

// harm is a way in which a resource of a type is one that Envoy refuses, though it is
// valid as far as the API can tell.
type harm struct {
	typ, name string
	do        func(proto.Message) proto.Message
	port      int    // of the service whose resource it is done to
	more      string // documents that it takes
}

// spoil changes a copy of a message.
func spoil[M proto.Message](change func(M)) func(proto.Message) proto.Message {
	return func(message proto.Message) proto.Message {
		m := proto.Clone(message).(M)
		change(m)
		return m
	}
}

// unknown is configuration of an extension that no Envoy has.
func unknown() *anypb.Any {
	return &anypb.Any{TypeUrl: "type.googleapis.com/portolan.test.Unknown"}
}

// otherType has a resource be of another type, which Envoy sees before it looks at any
// of a response.
func otherType(proto.Message) proto.Message { return wrapperspb.String("what is this?") }

// takenAddress is where a listener cannot be; see partRefusals.
const takenAddress = "127.0.0.2"

func harms(taken int) []harm {
	return []harm{
		{typ: "CDS", name: "extension", do: spoil(func(c *clusterv3.Cluster) {
			c.TypedExtensionProtocolOptions = map[string]*anypb.Any{"portolan.test.unknown": unknown()}
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
				Name: "portolan.test.unknown", ConfigType: &listenerv3.ListenerFilter_TypedConfig{TypedConfig: unknown()},
			})
		})},
		{typ: "LDS", name: "type", do: otherType},
		{typ: "VHDS", name: "domain", do: spoil(func(h *routev3.VirtualHost) { h.Domains = append(h.Domains, h.Domains[0]) })},
	}
}

// spoiler is a patch that does harm to the resources of a type that are to have some.
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

// spoilt are the types that are served, whose resources are spoilt.
func spoilt(harms []harm) []generate.ResourceType {
	types := catalogue.Types()
	for i, t := range types {
		types[i] = t.Patched(spoiler{harms, t.Name})
	}
	return types
}

// host is the service of which a resource is spoilt, and object what it comes from.
func (h harm) host() string   { return h.object() + ".test" }
func (h harm) object() string { return strings.ToLower("guilty-" + h.typ + "-" + h.name) }

// inType is the type by which an Envoy is told of what is spoilt.
func (h harm) inType(v protocol.Variant) string {
	if h.typ == "VHDS" && v == protocol.StateOfTheWorld {
		return "RDS"
	}
	return h.typ
}

// httpService is a service of one endpoint, with a port of its own, which its proxies
// answer for.
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

// suspects are a hundred innocents and the guilty, of a server in this process.
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

const patienceOfInnocents = 5 * time.Second

// TestEnvoyRefusesSomeAmongMany has real Envoys refuse resources of each type in each
// way that is known, among a hundred services that have nothing to do with them: these
// arrive within five seconds, at first and with a change, before which they were there
// or not. Each resource that is refused is told with its object, in the status and once
// in the log, and is not when its object is gone.
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

// documents are the innocents in their next form and, where that is asked for, the
// guilty.
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

// awaitInnocents waits until the Envoy has all of the innocents in their newest form,
// and uses that.
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

// awaitRefused waits until it is known what the Envoy refuses, of which objects.
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

// lines are those of a log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// count is how many lines have some words.
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
