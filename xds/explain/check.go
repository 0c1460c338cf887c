package explain

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// CheckPath is the path of an AccessCheck. Its parameters are to (a workload, a gateway or a host,
// with or without :PORT), and, if they are known, from (an identity or a proxy), port, ip, path,
// method, header (NAME=VALUE, several times) and claims (those of a token, as JSON).
const CheckPath = "/apis/portolan.io/v1/authz/check"

// AccessCheck says what the proxies of a destination do with a request of a caller. Its JSON form
// is an API.
type AccessCheck struct {
	metav1.TypeMeta `json:",inline"`
	// Revision is the store's revision that the check is for.
	Revision int64   `json:"revision"`
	Caller   Caller  `json:"caller"`
	Request  Request `json:"request"`
	// Destinations says what proxies do, each for its endpoints or, of a gateway, the address where
	// it takes the request.
	Destinations []Inbound `json:"destinations"`
	// Unguarded are the endpoints without a connected sidecar. No policy judges what they get.
	Unguarded []string `json:"unguarded,omitempty"`
	// Outcome is Forwarded, PartlyFails, Fails or Unknown, one of the constants above.
	Outcome string `json:"outcome"`
}

// Caller is who sends the request.
type Caller struct {
	// Identity is the name in the caller's certificate, empty for none. Whether the caller proves
	// it depends on the destination.
	Identity string `json:"identity,omitempty"`
	// Node is the node id of a proxy that stands for the caller.
	Node    string `json:"node,omitempty"`
	Address string `json:"address"`
}

// Check answers what the policies of a destination say about a request. It builds what a server
// sends the destination's proxies, and simulates Envoys with these resources. With operations it
// answers as if they were applied. others may be nil.
func Check(server Nodes, types []generate.ResourceType, others Others) func(*http.Request, []storage.Op) (any, error) {
	return func(r *http.Request, ops []storage.Op) (any, error) {
		push, err := contextOf(server, ops)
		if err != nil {
			return nil, err
		}
		c := &checker{explainer: explainer{push: push, nodes: server.Nodes(), others: others, types: types, refusals: refusalsOf(r.Context(), server, ops)}}
		if others != nil {
			c.nodes, c.others = slices.Concat(c.nodes, others.Proxies()), nil // which are looked up here
		}
		if err = c.read(r.URL.Query()); err == nil {
			err = c.find()
		}
		if err != nil {
			return nil, refusal.BadRequest(err.Error())
		}
		return c.check()
	}
}

// checker answers one question. The explainer in it has the caller's proxy, a hypothetical one for
// an identity or nobody.
type checker struct {
	explainer
	to   string // without its port
	node bool   // the caller is a proxy
	// claims are those of the request's token, nil for none.
	claims map[string]any
	target target
}

func (c *checker) read(query url.Values) error {
	c.question = question{
		from: query.Get("from"), path: query.Get("path"), method: query.Get("method"), headers: map[string]string{}, at: time.Now(),
	}
	c.to = query.Get("to")
	if name, port, ok := cutPort(c.to); ok && !strings.Contains(name, ":") || ok && strings.HasPrefix(name, "[") {
		c.to, c.port = strings.Trim(name, "[]"), port
	}
	if c.to == "" {
		return errors.New("say to where: " + CheckPath + "?to=WORKLOAD or HOST:PORT")
	}
	if text := query.Get("port"); text != "" {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 || c.port != 0 && c.port != int(port) {
			return fmt.Errorf("port: must be a number from 1 to 65535, and that of to if to has one, is %q", text)
		}
		c.port = int(port)
	}
	if text := query.Get("claims"); text != "" {
		if err := json.Unmarshal([]byte(text), &c.claims); err != nil || c.claims == nil {
			return errors.New("claims: must be the claims of a token as a JSON object, such as {\"iss\": \"https://issuer.example\", \"sub\": \"anna\"}")
		}
	}
	return c.readRequest(query)
}

// find finds the caller and the destination.
func (c *checker) find() error {
	if err := c.findCaller(); err != nil {
		return err
	}
	c.builder = generate.NewBuilder(c.push, c.proxy, generate.For(c.types, c.proxy.Type))
	found, err := c.findTarget()
	c.target = found
	return err
}

// findCaller finds the proxy that calls, or makes one for an identity or nobody.
func (c *checker) findCaller() (err error) {
	c.proxy = newProxy(discovery.Sidecar, noAddress, "caller", "default")
	switch name := strings.TrimPrefix(c.from, "spiffe://"); {
	case c.from == "":
	case name != c.from || strings.Contains(name, "/ns/") && strings.Contains(name, "/sa/"):
		_, rest, _ := strings.Cut(name, "/ns/")
		if namespace, _, ok := strings.Cut(rest, "/sa/"); ok {
			c.proxy = newProxy(discovery.Sidecar, noAddress, "caller", namespace)
		}
		c.proxy.Identity = "spiffe://" + name
	default:
		c.node = true
		c.proxy, _, err = proxyFrom(c.push, c.nodes, c.from)
	}
	return err
}

func (c *checker) check() (*AccessCheck, error) {
	out := &AccessCheck{
		TypeMeta: metav1.TypeMeta{APIVersion: "portolan.io/v1", Kind: "AccessCheck"}, Revision: c.push.Revision(), Destinations: []Inbound{},
		Caller: Caller{Identity: c.proxy.Identity, Address: c.source()},
	}
	if c.node {
		out.Caller.Node, out.Caller.Identity = c.proxy.ID, c.identity()
	}
	if c.target.gateway != nil {
		if err := c.atGateway(out); err != nil {
			return nil, err
		}
		return out, nil
	}
	r := c.request()
	out.Request = Request{Protocol: string(r.Protocol), Host: r.Host, Port: r.Port}
	if !isStream(r) {
		out.Request.Method, out.Request.Path = cmp.Or(r.Method, http.MethodGet), cmp.Or(r.Path, "/")
	}
	for _, at := range c.target.endpoints {
		beside := at.sidecars
		if ip, err := netip.ParseAddr(at.address); err == nil && beside == nil {
			beside = c.sidecarsBeside(ip)
		}
		endpoint := names.HostPort(at.address, uint32(at.port))
		if len(beside) == 0 {
			out.Unguarded = append(out.Unguarded, endpoint)
		}
		for _, proxy := range beside {
			sent := c.sent(proxy, endpoint, at.port, r)
			encrypted := sent.Protocol != r.Protocol
			sent.Address, sent.Port = at.address, at.port
			out.Destinations = add(out.Destinations, c.inboundOf(proxy, sent, c.target.cluster, encrypted), endpoint, proxy)
		}
	}
	out.Outcome = outcomeOf(out)
	return out, nil
}

// request describes the request before anything encrypts it.
func (c *checker) request() simulate.Request {
	r := simulate.Request{
		Protocol: c.target.protocol(c.http), Port: c.target.port, Host: cmp.Or(c.authority, c.target.host), Path: c.path, Method: c.method,
		Headers: c.headers, Source: c.source(), Time: c.at, Claims: c.claims,
	}
	if c.proxy.Type == discovery.Proxyless && r.Protocol == simulate.HTTP {
		r.Protocol, r.Method = simulate.HTTP2, cmp.Or(r.Method, http.MethodPost)
	}
	return r
}

// source is the address of the caller.
func (c *checker) source() string {
	if !c.ip.IsValid() && c.node && len(c.proxy.IPAddresses) > 0 {
		return c.proxy.IPAddresses[0]
	}
	return c.clientAddress()
}

// sent returns a request as it comes to a sidecar: as the caller's proxy sends it or, from an
// identity alone, over mutual TLS wherever the sidecar takes that.
func (c *checker) sent(proxy *discovery.Proxy, endpoint string, port int, r simulate.Request) simulate.Request {
	if c.node && c.target.cluster != "" {
		return c.asSent(c.target.cluster, endpoint, r)
	}
	identity := c.proxy.Identity
	if c.node && c.proxy.HasCertificate() {
		identity = c.identity()
		r.Unnamed = identity == ""
	}
	return c.receiverOf(proxy).provedTo(r, identity, port)
}

// outcomeOf returns what becomes of a request to all destinations.
func outcomeOf(check *AccessCheck) string {
	failing, unknown, all := 0, false, len(check.Unguarded)
	for _, in := range check.Destinations {
		n := max(1, len(in.Endpoints))
		all += n
		unknown = unknown || in.Outcome == Unknown
		if in.Outcome == Fails {
			failing += n
		}
	}
	switch {
	case unknown:
		return Unknown
	case failing == 0:
		return Forwarded
	case failing < all:
		return PartlyFails
	}
	return Fails
}
