package integration

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// trafficScene is a cluster whose pods have a network of their own, a server that follows it, and the
// proxies of both variants.
type trafficScene struct {
	server  *server
	cluster *testCluster
	pods    *namespace
	known   map[string]bool // the addresses in the network of the pods
	of      *authority      // signs the certificate of the gateways
	proxies []*trafficProxy
}

// trafficProxy is a host with a sidecar, whose clients are captured, and with a gateway. Both are pods
// on the node n1.
type trafficProxy struct {
	name         string
	host         *namespace
	client, edge *envoy
	external     string // the external IP of the gateway
}

// trafficPod is a pod, and the servers in it.
type trafficPod struct {
	name, app, version string
	namespace, node    string // shop, n1
	// behind are the Services with the IP families of their slices; by default that of the name app, by
	// each address of the pod.
	behind string
	// ip and ip6 are its addresses; ip6 may be empty.
	ip, ip6     string
	hostNetwork bool
	// ports are the names of ports of Services, each with the number in the pod. Those with /tcp greet,
	// and the others speak HTTP.
	ports string
}

// captureOutbound redirects the connections of clients to the sidecar, of both IP families.
const captureOutbound = `
table inet portolan {
	chain output {
		type nat hook output priority -100;
		meta mark 77 meta l4proto tcp redirect to :15001
	}
}
`

// proxyServices are the Services that the pods of the proxies are behind. A proxy is where its pod is, if a
// Service has it.
const proxyServices = `
apiVersion: v1
kind: Namespace
metadata: {name: istio-system}
---
apiVersion: v1
kind: Service
metadata: {name: client, namespace: shop}
spec: {ipFamilyPolicy: RequireDualStack, selector: {app: client}, ports: [{name: http, port: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: istio-ingressgateway, namespace: istio-system}
spec:
  externalIPs: [10.0.1.9, 10.0.2.9]
  selector: {istio: ingressgateway}
  ports: [{name: http, port: 80}, {name: https, port: 443}]
---
`

func startTrafficScene(t *testing.T, api kubeAPI) *trafficScene {
	t.Helper()
	x := &trafficScene{cluster: newTestCluster(t, api), pods: newNamespace(t, "pods"), known: map[string]bool{}, of: newAuthority(t, "authority")}
	x.cluster.kubectlApply(proxyServices + kubeSecret(t, "istio-system", x.of.issue(time.Hour, "www.shop.test")) + "\n---" + ingressClassDocument +
		"---" + nodeIn("n1", "a") + "---" + nodeIn("n2", "b") + "---" + nodeIn("n3", "a"))
	file := "east=" + x.cluster.follow(strings.TrimPrefix(api.url, "https://"))
	x.server = startServer(t, serverOptions{
		args:       []string{"--services-kube", file, "--config-kube", file, "--secrets-kube", file + "=istio-system", "--write-status"},
		meshConfig: "outboundTrafficPolicy: {mode: REGISTRY_ONLY}\ningressService: istio-ingressgateway\n",
	})
	relay := startSocketRelay(t, x.server.xds)
	for i, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
		p := &trafficProxy{name: []string{"delta", "world"}[i], external: fmt.Sprintf("10.0.%d.9", i+1)}
		p.host = newNamespace(t, p.name)
		x.connect(p.host, i+1)
		ip, ip6, edge := fmt.Sprintf("10.0.%d.1", i+1), fmt.Sprintf("fd00:0:%d::1", i+1), fmt.Sprintf("10.0.%d.3", i+1)
		x.write(x.cluster, trafficPod{name: "client-" + p.name, app: "client", ip: ip, ip6: ip6, ports: "http=8080"})
		x.write(x.cluster, trafficPod{name: "edge-" + p.name, app: "edge", namespace: "istio-system", behind: "istio-ingressgateway/IPv4", ip: edge, ports: "http=80 https=443"})
		p.client = x.server.launchEnvoy(envoyOptions{
			kind: "sidecar", name: "client-" + p.name, ip: ip + "," + ip6, interception: "REDIRECT", clusterID: "east", variant: v, in: p.host, xds: relay,
		})
		p.edge = x.server.launchEnvoy(envoyOptions{
			kind: "router", name: "edge-" + p.name, namespace: "istio-system", ip: edge, labels: "istio=ingressgateway", clusterID: "east", variant: v, in: p.host, xds: relay,
		})
		x.proxies = append(x.proxies, p)
	}
	for _, p := range x.proxies {
		p.client.awaitReady()
		p.edge.awaitReady()
	}
	return x
}

// connect connects a host to the network of the pods, which has all other addresses.
func (x *trafficScene) connect(host *namespace, number int) {
	there := fmt.Sprint("h", number)
	host.ip("link", "add", "eth0", "type", "veth", "peer", "name", there, "netns", x.pods.name)
	host.up("eth0", fmt.Sprintf("10.0.%d.1/24", number), fmt.Sprintf("10.0.%d.3/24", number), fmt.Sprintf("10.0.%d.9/24", number), fmt.Sprintf("fd00:0:%d::1/64", number))
	x.pods.up(there, fmt.Sprintf("10.0.%d.2/24", number), fmt.Sprintf("fd00:0:%d::2/64", number))
	host.ip("route", "add", "default", "via", fmt.Sprintf("10.0.%d.2", number))
	host.ip("-6", "route", "add", "default", "via", fmt.Sprintf("fd00:0:%d::2", number))
	host.nft(captureOutbound)
}

// run writes the objects of a row, starts its servers, and expects the answers of its steps.
func (x *trafficScene) run(t *testing.T, row trafficRow) {
	c := newTestCluster(t, x.cluster.kubeAPI)
	c.kubectlApply(row.objects)
	pods := map[string]trafficPod{}
	for _, p := range row.pods {
		pods[p.name] = p
		x.serve(t, p)
		x.write(c, p)
	}
	for i, step := range row.steps {
		if step.cluster != "" {
			c.kubectlApply(step.cluster)
		}
		if step.store != "" {
			x.server.apply(step.store)
		}
		if step.gone != "" {
			x.slices(c, pods[step.gone], podNotReady)
		}
		for _, p := range x.proxies {
			for _, call := range step.calls {
				x.expect(t, fmt.Sprintf("step %d, %s", i+1, p.name), p, call)
			}
		}
	}
	if row.then != nil {
		row.then(x, t)
	}
}

// serve starts the servers of a pod.
func (x *trafficScene) serve(t *testing.T, p trafficPod) {
	t.Helper()
	for address, name := range map[string]string{p.ip: p.name, p.ip6: p.name + "/6"} {
		if address == "" {
			continue
		}
		if !x.known[address] {
			x.known[address] = true
			x.pods.up("lo", address)
		}
		for _, port := range p.portList() {
			l := x.pods.listen(net.JoinHostPort(address, port.number))
			if port.greets {
				serveTCPUpstream(t, name, l)
			} else {
				serveUpstream(t, name, l)
			}
		}
	}
}

type trafficPort struct {
	name, number string
	greets       bool
}

func (p trafficPod) portList() (out []trafficPort) {
	for one := range strings.FieldsSeq(p.ports) {
		name, number, _ := strings.Cut(one, "=")
		number, greets := strings.CutSuffix(number, "/tcp")
		out = append(out, trafficPort{name, number, greets})
	}
	return out
}

// write writes a pod with its status, and the slices of the Services that it is behind.
func (x *trafficScene) write(c *testCluster, p trafficPod) {
	c.t.Helper()
	if p.app == "" { // a machine
		return
	}
	ips := fmt.Sprintf("[{ip: %q}]", p.ip)
	if p.ip6 != "" {
		ips = fmt.Sprintf("[{ip: %q}, {ip: %q}]", p.ip, p.ip6)
	}
	c.apply(p.fill(`
apiVersion: v1
kind: Pod
metadata: {name: $name, namespace: $ns, labels: {app: $app, version: "$version"}}
spec: {nodeName: $node, hostNetwork: $hostNetwork, serviceAccountName: web, containers: [{name: c, image: i}]}
status: {phase: Running, podIP: $ip, podIPs: $ips, conditions: [{type: Ready, status: "True"}]}
`, "$ips", ips, "$ip", p.ip, "$hostNetwork", p.hostNetwork))
	x.slices(c, p, podReady)
}

// slices writes the slices of a pod.
func (x *trafficScene) slices(c *testCluster, p trafficPod, conditions string) {
	c.t.Helper()
	behind := p.behind
	if behind == "" {
		behind = p.app + "/IPv4"
		if p.ip6 != "" {
			behind += " " + p.app + "/IPv6"
		}
	}
	var ports []string
	for _, port := range p.portList() {
		ports = append(ports, fmt.Sprintf("{name: %s, port: %s, protocol: TCP}", port.name, port.number))
	}
	for one := range strings.FieldsSeq(behind) {
		service, family, known := strings.Cut(one, "/")
		if !known { // it is behind nothing
			continue
		}
		address := map[string]string{"IPv4": p.ip, "IPv6": p.ip6}[family]
		c.apply(p.fill(`
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
addressType: $family
metadata: {name: $service-$name-$lower, namespace: $ns, labels: {kubernetes.io/service-name: $service}}
ports: [$ports]
endpoints: [{addresses: ["$address"], conditions: $conditions, nodeName: $node, targetRef: {kind: Pod, name: $name, namespace: $ns}}]
`, "$family", family, "$lower", strings.ToLower(family), "$service", service, "$ports", strings.Join(ports, ", "), "$address", address, "$conditions", conditions))
	}
}

func (p trafficPod) fill(document string, pairs ...any) string {
	return fill(document, append(pairs, "$name", p.name, "$app", p.app, "$version", p.version, "$ns", cmp.Or(p.namespace, "shop"), "$node", cmp.Or(p.node, "n1"))...)
}

// expect waits until exactly those answer that a call wants. Then each has its share. It asks so often that
// another endpoint with a half of the requests is not missed by chance.
func (x *trafficScene) expect(t *testing.T, where string, p *trafficProxy, call trafficCall) {
	t.Helper()
	want, what := slices.Sorted(slices.Values(call.want)), where+", "+call.to+" "+call.host
	ask := x.asker(t, p, call)
	eventually(t, what+" is answered by "+strings.Join(want, ", "), func() error {
		seen := map[string]int{}
		for range 24 * len(want) {
			seen[ask(t.Context())]++
		}
		if got := typesOf(seen); !slices.Equal(got, want) {
			return fmt.Errorf("by %v", seen)
		}
		return nil
	})
	if len(want) == 1 {
		return
	}
	sample := map[string]int{}
	for range 60 * len(want) {
		sample[ask(t.Context())]++
	}
	expectShare(t, what, sample, call.want[0], cmp.Or(call.percent, 100/len(want)))
	if got := typesOf(sample); !slices.Equal(got, want) {
		t.Errorf("%s: of many requests, the answers are of %v, want %v", what, sample, want)
	}
}

// asker returns what makes a call once, and says who answers.
func (x *trafficScene) asker(t *testing.T, p *trafficProxy, call trafficCall) func(context.Context) string {
	to := strings.ReplaceAll(call.to, "$edge", p.external)
	if address, isTCP := strings.CutPrefix(to, "tcp://"); isTCP {
		return func(ctx context.Context) string { return p.greeted(ctx, address) }
	}
	client := p.host.marked(t, captureMark)
	if call.edge {
		client = x.pods.http(t)
		roots := x509.NewCertPool()
		roots.AddCert(x.of.pair.Parsed)
		client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{ServerName: call.host, RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	return func(ctx context.Context) string {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, to, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = call.host
		got, err := answer(client, r)
		switch {
		case err != nil:
			return "closed"
		case call.proto:
			return got.String() + " " + got.echo.Proto
		}
		return got.String()
	}
}

// greeted returns the greeting of a server at an address, as a captured client gets it.
func (p *trafficProxy) greeted(ctx context.Context, address string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := p.host.dial(ctx, address, captureMark)
	if err != nil {
		return "closed"
	}
	defer func() { _ = c.Close() }()
	deadline, _ := ctx.Deadline()
	_ = c.SetDeadline(deadline)
	line, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return "closed"
	}
	return strings.TrimSpace(line)
}
