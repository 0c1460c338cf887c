package integration

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"

	"github.com/portolan-mesh/portolan/storage/longtest"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/simulate"
)

// simulatedLog is an access log that says which request a line is for, and what became of it.
const simulatedLog = `
accessLogFile: /dev/stdout
accessLogFormat: "CASE|%REQ(X-CASE)%|%RESPONSE_CODE%|%RESPONSE_CODE_DETAILS%|%ROUTE_NAME%|%UPSTREAM_CLUSTER_RAW%|%UPSTREAM_HOST%"
pathNormalization: {normalization: `

// anyAddress is one to which the workload's clients connect. Their sidecar goes by the host.
const anyAddress = "10.9.9.9"

// meshName is the server name of TLS clients of the workload, and meshHTTP what they offer.
const meshName = "outbound_.80_._.app.shop.test"

var meshHTTP = []string{"istio-http/1.1", "istio", "http/1.1"}

// seen is what became of a request: what its client got, and what the proxy logged.
type seen struct {
	reply
	closed                           bool
	details, route, cluster, address string
}

func (s seen) String() string {
	return fmt.Sprintf("status %d, closed %t, location %q, by %s, route %q, cluster %q at %s, path %q, host %q", s.status, s.closed, s.location, s.details, s.route, s.cluster, s.address, s.echo.Path, s.echo.Host)
}

// simulatedScene has the proxies of a bypassScene, whose resources the simulation reads.
type simulatedScene struct {
	*bypassScene
	proxies map[string]*envoy
}

func newSimulatedScene(t *testing.T, v protocol.Variant, level string) *simulatedScene {
	s := &simulatedScene{&bypassScene{peerMesh: newPeerMesh(t, serverOptions{meshConfig: simulatedLog + level + "}"})}, map[string]*envoy{}}
	s.certify(t)
	s.proxies["app"] = s.launchEnvoy(envoyOptions{kind: "sidecar", name: "app", labels: "app=app", interception: "REDIRECT", variant: v, in: s.workload, xds: s.xds, certificate: identified(t, s.of, shopAccounts+"app"), logs: true})
	s.proxies["edge"] = s.launchEnvoy(envoyOptions{kind: "router", name: "edge", labels: "app=edge", ip: "10.0.0.2", variant: v, in: s.client, xds: s.xds, certificate: identified(t, s.of, shopAccounts+"edge"), logs: true})
	return s
}

// simulation returns a simulation of a proxy with the resources that the Envoy has.
func (s *simulatedScene) simulation(t *testing.T, name string) *simulate.Proxy {
	t.Helper()
	body, err := s.proxies[name].get("/config_dump?include_eds")
	if err != nil {
		t.Fatal(err)
	}
	dump, err := admin.ReadDump(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for host, m := range dump.Resources[resource.VirtualHostType] { // they come apart from their routes
		of, _, _ := strings.Cut(host, "/")
		config := dump.Resources[resource.RouteType][of].(*routev3.RouteConfiguration)
		config.VirtualHosts = append(config.VirtualHosts, m.(*routev3.VirtualHost))
	}
	var out []*resource.Resource
	for _, of := range dump.Resources {
		for name, m := range of {
			r, err := resource.New(name, m)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, r)
		}
	}
	p, err := simulate.New(out)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// call sends a request, and returns what became of it.
func (s *simulatedScene) call(r drawnRequest, want simulate.Result) (seen, error) {
	c, err := s.enter(r.doorway)
	if err != nil {
		return seen{}, err
	}
	defer func() { _ = c.Close() }()
	before := len(s.proxies[r.proxy].process.output())
	method, _, _ := strings.Cut(r.raw, " ")
	if _, err := io.WriteString(c, r.raw); err != nil {
		return seen{closed: true}, nil
	}
	if r.port == bytesPort {
		answer, _ := io.ReadAll(io.LimitReader(c, int64(len(peerGreeting+"\n"+r.raw)))) // the server speaks first, so that the greeting alone says nothing
		return seen{closed: string(answer) != peerGreeting+"\n"+r.raw}, nil
	}
	response, err := http.ReadResponse(bufio.NewReader(c), &http.Request{Method: method})
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return seen{}, err
	}
	if err != nil {
		return seen{closed: true}, nil
	}
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return seen{}, err
	}
	out := seen{reply: reply{status: response.StatusCode, location: response.Header.Get("Location"), header: response.Header, body: string(body)}}
	_ = json.Unmarshal(body, &out.echo)
	if asBytes(want) {
		return out, nil
	}
	if early := out.status == http.StatusBadRequest || out.status == http.StatusRequestHeaderFieldsTooLarge; early && out.header.Get("x-envoy-upstream-service-time") == "" {
		return out, nil // the proxy refuses it before it knows what to log
	}
	return out, s.logged(r, before, &out)
}

// asBytes says whether a request is forwarded as bytes: nobody logs its headers.
func asBytes(want simulate.Result) bool { return fateOf(want) == "forwarded" && want.VirtualHost == "" }

// logged waits for the line of the access log about a request.
func (s *simulatedScene) logged(r drawnRequest, before int, into *seen) error {
	begins := "CASE|" + r.request.Headers["x-case"] + "|"
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		output := s.proxies[r.proxy].process.output()
		_, line, ok := strings.Cut(output[min(before, len(output)):], begins)
		line, _, whole := strings.Cut(line, "\n")
		if parts := strings.Split(line, "|"); ok && whole {
			into.details, into.route, into.cluster, into.address = parts[1], parts[2], strings.Join(parts[3:len(parts)-1], "|"), parts[len(parts)-1]
			return nil
		}
	}
	return fmt.Errorf("no access log has case %s", begins)
}

// enter connects to a doorway.
func (s *simulatedScene) enter(at doorway) (net.Conn, error) {
	switch at.at {
	case gateway:
		return s.within(s.client.dial(s.t.Context(), fmt.Sprint("10.0.0.2:", at.port), 0))
	case goingOut:
		return s.within(s.workload.dial(s.t.Context(), fmt.Sprintf("%s:%d", anyAddress, at.port), captureMark))
	}
	return s.dialTo(at.at, fmt.Sprint("10.0.0.1:", at.port), at.offers()...)
}

func (s *simulatedScene) within(c net.Conn, err error) (net.Conn, error) {
	if err != nil {
		return nil, err
	}
	return c, c.SetDeadline(time.Now().Add(patience))
}

// differs says how what became of a request differs from the simulation, nil if it does not.
func differs(want simulate.Result, got seen) error {
	if want.Err != nil {
		return differsFailed(want, got)
	}
	var status int
	details := ""
	switch refusal, refused := want.Refused(); {
	case want.Token != nil:
		status, details = want.Status, want.Token.Details()
	case refused:
		status, details = http.StatusForbidden, refusal.Details()
	case want.Fault.AbortsAll():
		status, _ = strconv.Atoi(want.Fault.Abort)
		details = "fault_filter_abort"
	case want.Status == http.StatusBadRequest || want.Status == http.StatusRequestHeaderFieldsTooLarge:
		if got.status != want.Status || got.details != "" {
			return fmt.Errorf("the status is not %d", want.Status)
		}
		return nil
	case want.Status == http.StatusOK && want.Action.GetRoute() != nil:
		status, details = want.Status, "cors_response"
	case want.Status != 0:
		status, details = want.Status, "direct_response"
	default:
		return differsForwarded(want, got)
	}
	switch {
	case got.closed, got.status != status:
		return fmt.Errorf("the status is not %d", status)
	case got.details != details:
		return fmt.Errorf("it is not decided by %s", details)
	case want.Location != got.location:
		return fmt.Errorf("the location is not %q", want.Location)
	case want.Route != "" && got.route != want.Route:
		return fmt.Errorf("the route is not %q", want.Route)
	case want.Body != "" && got.body != want.Body:
		return fmt.Errorf("the body is %q, not %q", got.body, want.Body)
	}
	return nil
}

// differsFailed is differs of a request that reaches no destination.
func differsFailed(want simulate.Result, got seen) error {
	switch {
	case errors.Is(want.Err, simulate.ErrNoVirtualHost), errors.Is(want.Err, simulate.ErrNoRoute):
		if got.status != http.StatusNotFound || got.details != "route_not_found" {
			return errors.New("a route is found")
		}
	case errors.Is(want.Err, simulate.ErrRefused), errors.Is(want.Err, simulate.ErrNoFilterChain), errors.Is(want.Err, simulate.ErrPlaintext), errors.Is(want.Err, simulate.ErrNoListener):
		if !got.closed {
			return errors.New("the connection is not closed")
		}
	default:
		return fmt.Errorf("the simulation fails: %w", want.Err)
	}
	return nil
}

// differsForwarded is differs of a request that is forwarded.
func differsForwarded(want simulate.Result, got seen) error {
	if asBytes(want) {
		if nowhere := want.Destinations[0].Cluster == names.BlackHoleCluster; got.closed != nowhere || got.details != "" {
			return fmt.Errorf("the bytes go nowhere: %t", !nowhere)
		}
		return nil
	}
	var chosen *simulate.Destination
	for i, d := range want.Destinations {
		if d.Cluster == got.cluster {
			chosen = &want.Destinations[i]
		}
	}
	missing := slices.ContainsFunc(want.Destinations, func(d simulate.Destination) bool { return d.Missing })
	switch {
	case got.closed:
		return errors.New("it is not forwarded")
	case missing && got.status == http.StatusServiceUnavailable && got.details == "cluster_not_found":
		return nil
	case chosen == nil:
		return fmt.Errorf("the cluster is none of %v", want.Destinations)
	case got.route != want.Route:
		return fmt.Errorf("the route is not %q", want.Route)
	case got.details == "no_healthy_upstream":
		if len(chosen.Endpoints) > 0 {
			return fmt.Errorf("no endpoint of %v is healthy", chosen.Endpoints)
		}
		return nil
	case len(chosen.Endpoints) > 0 && !slices.Contains(chosen.Endpoints, got.address):
		return fmt.Errorf("the endpoint is none of %v", chosen.Endpoints)
	case got.echo.Upstream == "":
		if got.details != "via_upstream" && !strings.HasSuffix(got.details, "{protocol_error}") { // a server of Go refuses some paths
			return errors.New("no upstream answers")
		}
		return nil
	case got.echo.Path != want.Path || got.echo.Host != cmp.Or(chosen.Host, want.Host):
		return fmt.Errorf("the upstream does not see %q of %q", want.Path, cmp.Or(chosen.Host, want.Host))
	}
	for _, name := range []string{"authorization", "x-sub", "x-payload", "x-token", "x-user", "x-forwarded-for", "x-forwarded-proto"} {
		value := ""
		for k, v := range want.Headers {
			if strings.EqualFold(k, name) {
				value = v
			}
		}
		if own := got.echo.Header.Get(name); own != value {
			return fmt.Errorf("the upstream sees %s: %q, not %q", name, own, value)
		}
	}
	return nil
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// TestSoakEnvoyDoesWhatIsSimulated: Envoys with random meshes and policies answer random requests
// as the simulation does: with the same status and destination, by the same route or policy.
func TestSoakEnvoyDoesWhatIsSimulated(t *testing.T) {
	const few, many = 20, 300
	long, meshes, seed := longtest.Soak(t), few, uint64(1)
	if long == 0 {
		t.Parallel()
	} else {
		meshes, seed = many, uint64(time.Now().UnixNano())
	}
	for i, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		t.Run(fmt.Sprint(v), func(t *testing.T) {
			t.Logf("seed %d", seed)
			compareSimulated(t, v, []string{"MERGE_SLASHES", "BASE"}[i], rand.New(rand.NewPCG(seed, uint64(i))), long > 0, func(done int, since time.Time) bool {
				return done < meshes || time.Since(since) < long/2
			})
		})
	}
}

// compareSimulated compares meshes while more says so of the number that was compared, and of when
// the first was.
func compareSimulated(t *testing.T, v protocol.Variant, level string, random *rand.Rand, narrows bool, more func(int, time.Time) bool) {
	const requests = 16
	s := newSimulatedScene(t, v, level)
	serveUpstream(t, "http", s.workload.listen("0.0.0.0:9999")) // no service has the port
	of := &explainedMesh{random: random, gateway: 8000, ports: [2]int{9080, 9081}, hosts: [2]string{"one.explain.test", "two.explain.test"}, address: "10.0.0.2"}
	for i := range 3 {
		of.upstreams = append(of.upstreams, serveUpstream(t, fmt.Sprint("v", i), s.client.listen(fmt.Sprint("0.0.0.0:", 9000+i))))
	}
	s.client.ip("addr", "add", anyAddress+"/32", "dev", "lo") // where requests go for which no service is
	for _, port := range of.ports {
		serveUpstream(t, "beyond", s.client.listen(fmt.Sprintf("%s:%d", anyAddress, port)))
	}
	m, kinds, id := newSimulatedMesh(t, of), map[string]int{}, 0
	m.narrows = narrows
	for n, begun := 0, time.Now(); more(n, begun) && !t.Failed(); n++ {
		documents := m.documents()
		s.awaitSynced(s.apply(documents), "app", "edge")
		proxies := map[string]*simulate.Proxy{"app": s.simulation(t, "app"), "edge": s.simulation(t, "edge")}
		for range requests {
			id++
			r := m.draw(id)
			want := proxies[r.proxy].Run(r.request)
			got, err := s.call(r, want)
			if err == nil {
				err = differs(want, got)
			}
			if err != nil {
				t.Errorf("mesh %d, request %d: %s\nsimulated: %s, refused %+v, token %+v\nseen: %s\n%v", n, id, r, want, want.Access, want.Token, got, err)
			}
			kinds[fateOf(want)]++
		}
		if t.Failed() {
			t.Logf("the mesh is %s", documents)
		}
	}
	t.Logf("%d requests: %v", id, kinds)
	s.expectNothingRejected()
}

// fateOf says in a word what becomes of a request.
func fateOf(r simulate.Result) string {
	_, refused := r.Refused()
	switch {
	case r.Token != nil:
		return "token"
	case refused:
		return "refused"
	case r.Err != nil:
		return "failed"
	case r.Fault.AbortsAll():
		return "fault"
	case r.Status != 0:
		return "answered"
	}
	return "forwarded"
}
