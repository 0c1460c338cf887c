package mesh

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"
	extensions "istio.io/api/extensions/v1alpha1"
	meshv1alpha1 "istio.io/api/mesh/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	networkingv1beta1 "istio.io/api/networking/v1beta1"
	security "istio.io/api/security/v1beta1"
	telemetryv1 "istio.io/api/telemetry/v1alpha1"
	apitype "istio.io/api/type/v1beta1"
	networkingv1 "k8s.io/api/networking/v1"
	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/kube/clustersecret"
	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/modules"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/storage/labels"
	"github.com/portolan-mesh/portolan/storage/phase"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds/mesh/peer"
	"github.com/portolan-mesh/portolan/xds/mesh/plugin"
	"github.com/portolan-mesh/portolan/xds/mesh/telemetry"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

var (
	testHosts      = []string{"a.shop.example", "b.shop.example", "*.shop.example", "short"}
	testNamespaces = []string{"shop", "edge", "istio-system"}
)

// draw changes inputs at random, step by step.
type draw struct {
	t        *rapid.T
	revision int64
	configs  pmap.Map[*config.Config]
	in       Inputs
}

func (d *draw) one(of []string, label string) string { return rapid.SampledFrom(of).Draw(d.t, label) }

func (d *draw) some(of []string, label string) []string {
	return rapid.SliceOfNDistinct(rapid.SampledFrom(of), 0, 2, rapid.ID[string]).Draw(d.t, label)
}

func (d *draw) step() Inputs {
	switch d.one([]string{"config", "config", "service", "endpoints", "secret", "grant", "mesh", "modules", "ingress"}, "what") {
	case "ingress":
		d.ingress()
	case "mesh":
		d.meshConfig()
	case "modules":
		d.modules()
	case "grant":
		d.grant()
	case "secret":
		d.secret()
	case "config":
		d.config()
	case "service":
		d.service()
	default:
		d.endpoints()
	}
	d.revision++
	d.in.Configs = cache.NewSnapshot(d.revision, d.configs)
	return d.in
}

func (d *draw) config() {
	c := &config.Config{Meta: config.Meta{
		Name: d.one([]string{"x", "y"}, "name"), Namespace: d.one(testNamespaces, "namespace"), Domain: meshconfig.DefaultDomain,
		CreationTimestamp: time.Unix(int64(rapid.IntRange(0, 2).Draw(d.t, "created")), 0),
	}}
	exportTo := d.some([]string{".", "*", "shop", "~"}, "exportTo")
	switch kind := d.one([]string{"VirtualService", "DestinationRule", "Gateway", "Sidecar", "PeerAuthentication", "Peers", "AuthorizationPolicy", "RequestAuthentication", "Keys", "Probed", "Group", "Telemetry", "ProxyConfig", "EnvoyFilter", "WasmPlugin"}, "kind"); kind {
	case "VirtualService":
		vs := &networking.VirtualService{
			Hosts: append(d.some(testHosts, "hosts"), "c.shop.example"), ExportTo: exportTo,
			Gateways: d.some([]string{"mesh", "x", "edge/y", "./y"}, "gateways"),
			Http: []*networking.HTTPRoute{{Match: d.match(), Route: []*networking.HTTPRouteDestination{{
				Destination: &networking.Destination{Host: d.one(testHosts, "destination")},
			}}}},
		}
		if mirror := d.one(append([]string{""}, testHosts...), "mirror"); mirror != "" {
			vs.Http[0].Mirrors = []*networking.HTTPMirrorPolicy{{Destination: &networking.Destination{Host: mirror}}}
		}
		if rapid.Bool().Draw(d.t, "streams") {
			to := []*networking.RouteDestination{{Destination: &networking.Destination{Host: d.one(testHosts, "destination")}}}
			source := map[string]string{"app": d.one([]string{"x", "y", "z"}, "source")}
			match := &networking.L4MatchAttributes{
				SourceLabels: source, SourceNamespace: d.one([]string{"", "", "shop"}, "from"),
				Port: uint32(rapid.SampledFrom([]int{0, 80, 81}).Draw(d.t, "at")), Gateways: d.some([]string{"x", "mesh"}, "at gateways"),
			}
			vs.Tcp = []*networking.TCPRoute{{Match: []*networking.L4MatchAttributes{match}, Route: to}}
			names := &networking.TLSMatchAttributes{SniHosts: []string{d.one(testHosts[:3], "name")}, Port: match.Port, Gateways: match.Gateways}
			vs.Tls = []*networking.TLSRoute{{Match: []*networking.TLSMatchAttributes{names}, Route: to}}
			if rapid.Bool().Draw(d.t, "only") {
				vs.Http = nil
			}
		}
		switch d.one([]string{"", "root", "delegate"}, "delegates") {
		case "root":
			to := &networking.Delegate{Name: d.one([]string{"x", "y"}, "delegate"), Namespace: d.one(append([]string{""}, testNamespaces...), "of")}
			vs.Http = append(vs.Http, &networking.HTTPRoute{Match: d.match(), Delegate: to})
		case "delegate":
			vs.Hosts, vs.Gateways, vs.Tcp = nil, nil, nil
		}
		c.Spec = vs
	case "DestinationRule":
		c.Spec = &networking.DestinationRule{Host: d.one(testHosts, "host"), ExportTo: exportTo, Subsets: []*networking.Subset{
			{Name: d.one([]string{"v1", "v2"}, "subset"), Labels: map[string]string{"v": c.Name}},
		}}
		if app := d.one([]string{"", "", "x", "y"}, "clients"); app != "" {
			c.Spec.(*networking.DestinationRule).WorkloadSelector = &apitype.WorkloadSelector{MatchLabels: map[string]string{"app": app}}
		}
		if rapid.Bool().Draw(d.t, "balances") {
			c.Spec.(*networking.DestinationRule).TrafficPolicy = &networking.TrafficPolicy{
				OutlierDetection: &networking.OutlierDetection{},
				ConnectionPool:   &networking.ConnectionPoolSettings{Http: d.protocol()},
				LoadBalancer: &networking.LoadBalancerSettings{LocalityLbSetting: &networking.LocalityLoadBalancerSetting{
					FailoverPriority: d.some([]string{"app", "v=1"}, "priorities"),
				}},
			}
			if rapid.Bool().Draw(d.t, "zones") {
				c.Spec.(*networking.DestinationRule).TrafficPolicy.LoadBalancer = &networking.LoadBalancerSettings{
					ZoneAwareLbSetting: &networking.ZoneAwareLoadBalancerSetting{FailoverPriority: d.some([]string{"app", "v=1"}, "priorities")},
				}
			}
		}
	case "Gateway":
		c.Spec = &networking.Gateway{Selector: map[string]string{"app": c.Name}, Servers: []*networking.Server{
			{Hosts: []string{d.one([]string{"*", "a.shop.example", "shop/b.shop.example"}, "served")}, Port: &networking.Port{Number: 80, Name: "http", Protocol: "HTTP"}},
		}}
	case "Sidecar":
		s := &networking.Sidecar{Egress: []*networking.IstioEgressListener{{Hosts: []string{"./" + d.one(testHosts, "import")}}}}
		if rapid.Bool().Draw(d.t, "selects") {
			s.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": "x"}}
		}
		if proxy := d.one(append([]string{""}, testHosts[:2]...), "egressProxy"); proxy != "" {
			s.OutboundTrafficPolicy = &networking.OutboundTrafficPolicy{
				Mode: networking.OutboundTrafficPolicy_ALLOW_ANY, EgressProxy: &networking.Destination{Host: proxy, Port: &networking.PortSelector{Number: 80}},
			}
		}
		c.Spec = s
	case "Telemetry":
		c.Spec = d.telemetry()
	case "WasmPlugin":
		c.GroupVersionKind, c.Spec = schema.WasmPlugin, d.plugin()
	case "PeerAuthentication":
		p := &security.PeerAuthentication{Mtls: &security.PeerAuthentication_MutualTLS{Mode: peer.Mode(rapid.IntRange(0, 3).Draw(d.t, "mode"))}}
		if rapid.Bool().Draw(d.t, "selects") {
			p.Selector = &apitype.WorkloadSelector{MatchLabels: map[string]string{"app": "x"}}
		}
		c.Spec = p
	case "AuthorizationPolicy":
		p := &security.AuthorizationPolicy{Action: security.AuthorizationPolicy_Action(rapid.IntRange(0, 1).Draw(d.t, "action"))}
		if rapid.Bool().Draw(d.t, "selects") {
			p.Selector = &apitype.WorkloadSelector{MatchLabels: map[string]string{"app": "x"}}
		}
		c.Spec = p
	case "RequestAuthentication":
		p := &security.RequestAuthentication{JwtRules: []*security.JWTRule{{Issuer: d.one(testHosts, "issuer")}}}
		if rapid.Bool().Draw(d.t, "selects") {
			p.Selector = &apitype.WorkloadSelector{MatchLabels: map[string]string{"app": "x"}}
		}
		c.Spec = p
	case "EnvoyFilter":
		f := &networking.EnvoyFilter{Priority: int32(rapid.IntRange(0, 1).Draw(d.t, "priority"))}
		if app := d.one([]string{"", "x"}, "selects"); app != "" {
			f.WorkloadSelector = &networking.WorkloadSelector{Labels: map[string]string{"app": app}}
		}
		for _, to := range d.some([]string{"CLUSTER", "HTTP_FILTER", "VIRTUAL_HOST", "HTTP_ROUTE"}, "applyTo") {
			p := &networking.EnvoyFilter_EnvoyConfigObjectPatch{
				ApplyTo: networking.EnvoyFilter_ApplyTo(networking.EnvoyFilter_ApplyTo_value[to]),
				Match:   &networking.EnvoyFilter_EnvoyConfigObjectMatch{Context: networking.EnvoyFilter_PatchContext(rapid.IntRange(0, 3).Draw(d.t, "context"))},
				Patch:   &networking.EnvoyFilter_Patch{Operation: networking.EnvoyFilter_Patch_REMOVE},
			}
			if version := d.one([]string{"", "1.*"}, "version"); version != "" {
				p.Match.Proxy = &networking.EnvoyFilter_ProxyMatch{ProxyVersion: version}
			}
			f.ConfigPatches = append(f.ConfigPatches, p)
		}
		c.Spec = f
	case "Group":
		group := &networking.WorkloadGroup{Template: &networking.WorkloadEntry{}, Probe: d.probe()}
		if config := d.one([]string{"", "{concurrency: 1}", "{concurrency: 2}"}, "config"); config != "" {
			group.Metadata = &networking.WorkloadGroup_ObjectMeta{Annotations: map[string]string{schema.ProxyConfigAnnotation: config}}
		}
		c.Spec = group
	case "ProxyConfig":
		c.Spec = &networkingv1beta1.ProxyConfig{Concurrency: wrapperspb.Int32(int32(rapid.IntRange(0, 2).Draw(d.t, "threads")))}
	case "Probed":
		c.Annotations = map[string]string{health.ProbeAnnotation: d.one([]string{"{tcpSocket: {port: 1}}", "{tcpSocket: {port: 2}}", "{"}, "annotation")}
		c.Spec = &networking.WorkloadEntry{Address: d.one([]string{"10.0.0.1", "10.0.0.2"}, "address"), ServiceAccount: d.one([]string{"", "web"}, "account")}
	case "Keys":
		c.GroupVersionKind = schema.KeySet
		c.Spec = &keyset.Fetched{Keys: d.one([]string{"", "a", "b"}, "keys"), Error: d.one([]string{"", "away"}, "error")}
		d.put(c)
		return
	case "Peers":
		c.GroupVersionKind, c.Name = schema.PeerPhase, schema.PeerPhaseName
		stored := &phase.Peers{}
		if row := peerRows.rowsOf(New(d.in)).Value(c.Namespace); rapid.Bool().Draw(d.t, "toward") {
			stored.Toward = row.Digest()
		} else {
			stored.Settled = row.Write()
		}
		c.Spec = stored
		d.put(c)
		return
	default:
		panic(kind)
	}
	kind := string(c.Spec.(proto.Message).ProtoReflect().Descriptor().Name())
	c.GroupVersionKind = config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: kind}
	switch kind {
	case "PeerAuthentication":
		c.GroupVersionKind = schema.PeerAuthentication
	case "AuthorizationPolicy":
		c.GroupVersionKind = schema.AuthorizationPolicy
	case "RequestAuthentication":
		c.GroupVersionKind = schema.RequestAuthentication
	case "Telemetry":
		c.GroupVersionKind = schema.Telemetry
	}
	d.put(c)
}

func (d *draw) probe() *networking.ReadinessProbe {
	port := rapid.IntRange(0, 2).Draw(d.t, "probe")
	if port == 0 {
		return nil
	}
	return &networking.ReadinessProbe{HealthCheckMethod: &networking.ReadinessProbe_Grpc{Grpc: &networking.GrpcHealthCheckConfig{Port: uint32(port)}}}
}

// put stores an object, or removes it.
func (d *draw) put(c *config.Config) {
	if rapid.IntRange(0, 3).Draw(d.t, "delete") == 0 {
		d.configs = d.configs.Delete(c.Key().Path())
	} else {
		d.configs = d.configs.Set(c.Key().Path(), c)
	}
}

// grant changes the HostGrant of a namespace, or what the ServiceEntry of a service says of its
// writer's rights.
func (d *draw) grant() {
	c := &config.Config{Meta: config.Meta{GroupVersionKind: schema.HostGrant, Name: "x", Namespace: d.one(testNamespaces, "namespace")}}
	c.Spec = &claim.HostGrant{
		From: []claim.From{{Kind: d.one([]string{"VirtualService", "DestinationRule", "ServiceEntry", "Gateway"}, "from"), Namespace: d.one(testNamespaces, "of")}},
		To:   []claim.To{{Hosts: d.some(append([]string{"*"}, testHosts[:3]...), "to")}},
	}
	if rapid.Bool().Draw(d.t, "entry") {
		h := d.one(testHosts[:2], "service")
		c.GroupVersionKind, c.Name, c.Spec = schema.ServiceEntry, h, &networking.ServiceEntry{Hosts: []string{h}}
		c.Annotations = map[string]string{claim.RightsAnnotation: d.one(testNamespaces, "right") + "/" + h}
	}
	if rapid.IntRange(0, 3).Draw(d.t, "delete") == 0 {
		d.configs = d.configs.Delete(c.Key().Path())
	} else {
		d.configs = d.configs.Set(c.Key().Path(), c)
	}
}

// ingress changes an Ingress or an IngressClass, or an object with the name of a derived one.
func (d *draw) ingress() {
	c := &config.Config{Meta: config.Meta{
		GroupVersionKind: schema.Ingress, Name: d.one([]string{"x", "y"}, "name"), Namespace: d.one(testNamespaces, "namespace"), Domain: meshconfig.DefaultDomain,
		CreationTimestamp: time.Unix(int64(rapid.IntRange(0, 2).Draw(d.t, "created")), 0),
	}}
	switch d.one([]string{"ingress", "ingress", "class", "namesake"}, "which") {
	case "class":
		c.GroupVersionKind, c.Name, c.Namespace = schema.IngressClass, "ours", ""
		c.Spec = &networkingv1.IngressClassSpec{Controller: d.one([]string{schema.IngressController, "other/one"}, "controller")}
	case "namesake":
		c.GroupVersionKind, c.Name, c.Namespace = schema.Gateway, "x-istio-autogenerated-k8s-ingress-shop", "istio-system"
		c.Spec = &networking.Gateway{Selector: map[string]string{"app": "x"}, Servers: []*networking.Server{{Port: &networking.Port{Number: 80, Protocol: "HTTP", Name: "p"}, Hosts: []string{"*"}}}}
	default:
		spec := &networkingv1.IngressSpec{}
		switch d.one([]string{"", "class", "annotation"}, "by") {
		case "class":
			spec.IngressClassName = new("ours")
		case "annotation":
			c.Annotations = map[string]string{schema.IngressClassAnnotation: d.one([]string{"istio", "other"}, "class")}
		}
		for _, h := range d.some([]string{"a.shop.example", "a-shop.example", "*.shop.example", ""}, "hosts") {
			port := networkingv1.ServiceBackendPort{Name: "p"}
			if rapid.Bool().Draw(d.t, "number") {
				port = networkingv1.ServiceBackendPort{Number: 80}
			}
			exact := networkingv1.PathTypeExact
			spec.Rules = append(spec.Rules, networkingv1.IngressRule{Host: h, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/x", PathType: &exact, Backend: networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: port}}}},
			}}})
		}
		if rapid.Bool().Draw(d.t, "default") {
			spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}}}
		}
		if rapid.Bool().Draw(d.t, "tls") {
			spec.TLS = []networkingv1.IngressTLS{{SecretName: "x"}}
		}
		c.Spec = spec
	}
	d.put(c)
}

// mesh draws whether the mesh asks who speaks for hosts.
func (d *draw) mesh() *draw {
	d.in.MeshFile = meshconfig.Default()
	d.in.MeshFile.HostConsent = rapid.Bool().Draw(d.t, "consent")
	return d
}

// meshConfig changes the object of the mesh configuration, or one elsewhere.
func (d *draw) meshConfig() {
	c := &config.Config{Meta: config.Meta{GroupVersionKind: schema.MeshConfig, Name: schema.MeshConfigName, Namespace: d.one(testNamespaces, "namespace")}}
	c.Spec = &meshv1alpha1.MeshConfig{
		AccessLogFile: d.one([]string{"", "/dev/stdout"}, "log"), EnableTracing: rapid.Bool().Draw(d.t, "tracing"),
		DefaultDestinationRuleExportTo: d.some([]string{".", "*"}, "rules"), DefaultVirtualServiceExportTo: d.some([]string{".", "*"}, "routes"),
		IngressControllerMode: rapid.SampledFrom([]meshv1alpha1.MeshConfig_IngressControllerMode{0, meshv1alpha1.MeshConfig_OFF, meshv1alpha1.MeshConfig_DEFAULT}).Draw(d.t, "mode"),
	}
	if rapid.Bool().Draw(d.t, "ejects") {
		c.Spec.(*meshv1alpha1.MeshConfig).DefaultTrafficPolicy = &meshv1alpha1.MeshConfig_DefaultTrafficPolicy{OutlierDetection: &networking.OutlierDetection{}}
	}
	d.put(c)
}

// protocol draws the settings that decide which HTTP version proxies speak.
func (d *draw) protocol() *networking.ConnectionPoolSettings_HTTPSettings {
	return &networking.ConnectionPoolSettings_HTTPSettings{
		UseClientProtocol: rapid.Bool().Draw(d.t, "client's"),
		Http2KeepAlive:    &networking.ConnectionPoolSettings_HTTPSettings_ConnectionKeepalive{},
	}
}

// rings are three servers' keys: none, only an older key, and both keys.
var rings, ringIDs = func() ([]*seal.Ring, []string) {
	older, first := seal.Ring{}.WithNew()
	both, second := older.WithNew()
	return []*seal.Ring{nil, &older, &both}, []string{first, second}
}()

// secret changes a secret of the store or of a cluster, or the server's keys.
func (d *draw) secret() {
	if rapid.IntRange(0, 3).Draw(d.t, "keys") == 0 {
		d.in.SealingKeys = rapid.SampledFrom(rings).Draw(d.t, "ring")
		return
	}
	c := &config.Config{Meta: config.Meta{
		GroupVersionKind: schema.Secret, Name: d.one([]string{"x", "x-cacert"}, "secret"), Namespace: d.one(testNamespaces, "namespace"),
	}}
	d.in.ClusterSecrets = d.in.ClusterSecrets.WithUnread(d.one(testNamespaces, "namespace"), rapid.Bool().Draw(d.t, "unread"))
	path, key := c.Key().Path(), SecretKey(c.Namespace, c.Name)
	ofCluster := rapid.IntRange(0, 2).Draw(d.t, "of a cluster") == 0
	if d.in.ClusterSecrets == (clustersecret.Set{}) {
		d.in.ClusterSecrets = clustersecret.NewSet(rings[len(rings)-1])
	}
	if d.one([]string{"", "", "delete"}, "delete") != "" {
		if ofCluster {
			d.in.ClusterSecrets = d.in.ClusterSecrets.With(key, nil)
		} else {
			d.configs = d.configs.Delete(path)
		}
		return
	}
	spec := &secret.Spec{Sealed: &secret.Sealed{Box: &seal.Box{Key: d.one(ringIDs, "key")}}}
	for _, name := range d.some([]string{secret.TLSCert, secret.TLSKey, secret.Authority, secret.TLSRevoked}, "entries") {
		spec.Sealed.Entries = append(spec.Sealed.Entries, secret.Entry{Name: name})
		spec.Sealed.Certificates = append(spec.Sealed.Certificates, secret.Certificate{Entry: name})
	}
	c.Spec = spec
	if ofCluster {
		d.in.ClusterSecrets = d.in.ClusterSecrets.With(key, c)
	} else {
		d.configs = d.configs.Set(path, c)
	}
}

func (d *draw) match() []*networking.HTTPMatchRequest {
	var out []*networking.HTTPMatchRequest
	for _, app := range d.some([]string{"x", "y", "z"}, "source") {
		out = append(out, &networking.HTTPMatchRequest{SourceLabels: map[string]string{"app": app}})
	}
	return out
}

func (d *draw) service() {
	h, ns := d.one(append([]string{"web.shop.svc.cluster.local"}, testHosts[:2]...), "service"), d.one(testNamespaces, "namespace")
	key := rows.Key(host.Name(h), ns)
	if rapid.IntRange(0, 3).Draw(d.t, "delete") == 0 {
		d.in.Services = d.in.Services.Delete(key)
		return
	}
	all := []*discovery.Service{{
		Hostname: host.Name(h), Address: d.one([]string{discovery.UnspecifiedIP, "10.9.0.1", "fd00:0::1", "10.8.0.0/16"}, "address"),
		AutoAllocatedIPv4: d.one([]string{"", "240.240.0.1"}, "given"),
		Ports: []discovery.Port{{
			Name: "p", Number: rapid.IntRange(80, 81).Draw(d.t, "port"),
			Protocol: discovery.Protocol(d.one([]string{"HTTP", "TCP", ""}, "protocol")),
		}},
		Attributes: discovery.Attributes{Provider: discovery.External, Name: h, Namespace: ns, ExportTo: discovery.Visibility(d.some([]string{"*", "shop"}, "exportTo"))},
	}}
	if by := d.one([]string{"", "", "selector", "cluster"}, "headless"); by != "" {
		s := all[0]
		if s.Resolution, s.Address, s.AutoAllocatedIPv4 = discovery.Passthrough, discovery.UnspecifiedIP, ""; by == "cluster" {
			s.Attributes.Provider = discovery.Kubernetes
		} else {
			s.Attributes.LabelSelectors = labels.Instance{"app": "x"}
		}
	}
	if of := d.one([]string{"", "", testHosts[0], testHosts[1], "web.shop.svc.cluster.local", "elsewhere.example"}, "alias of"); of != "" {
		s := all[0]
		s.Resolution, s.Address, s.AutoAllocatedIPv4, s.MeshExternal = discovery.DNSLB, discovery.UnspecifiedIP, "", true
		s.Attributes.Provider, s.Attributes.LabelSelectors, s.Attributes.ExternalName = discovery.Kubernetes, nil, host.Name(of)
	}
	for _, cluster := range d.some([]string{"east", "west"}, "clusters") {
		vip := d.one([]string{"10.96.0.1", "10.96.0.2"}, "vip")
		all = append(all, &discovery.Service{
			Hostname: host.Name(h), Address: vip, ClusterVIPs: map[string][]string{cluster: {vip, "fd00::9"}}, Ports: all[0].Ports,
			Attributes: discovery.Attributes{
				Provider: discovery.Kubernetes, Name: h, Namespace: ns, NodeLocal: d.one([]string{"", "local"}, "policy") != "",
				Distribution: labels.Distribution(d.one([]string{"", "PreferSameZone", "PreferSameNode"}, "distribution")),
			},
		})
	}
	d.in.Services = d.in.Services.Set(key, rows.NewService(all, nil))
}

func (d *draw) endpoints() {
	h, ns := d.one(testHosts[:2], "service"), d.one(testNamespaces, "namespace")
	row := &EndpointRow{Hostname: host.Name(h), Namespace: ns}
	for _, ip := range d.some([]string{"10.0.0.1", "10.0.0.2", "fd00:0::3", "host.example"}, "addresses") {
		row.Endpoints = append(row.Endpoints, &discovery.Endpoint{
			Address: ip, Port: 80, ServicePortName: d.one([]string{"p", "p", "q"}, "port"), Labels: labels.Instance{"app": d.one([]string{"x", "y"}, "app")},
			Node: d.one([]string{"", "n1"}, "node"),
		})
	}
	for _, ip := range d.some([]string{"10.0.0.1", "10.0.0.4"}, "out of use") {
		row.OutOfUse = append(row.OutOfUse, &discovery.Endpoint{Address: ip, Port: 80, ServicePortName: "p", Health: discovery.OutOfUse, WorkloadName: d.one([]string{"x", "y"}, "workload")})
	}
	key := rows.Key(row.Hostname, ns)
	if len(row.Workloads()) == 0 {
		d.in.Endpoints = d.in.Endpoints.Delete(key)
	} else {
		d.in.Endpoints = d.in.Endpoints.Set(key, row)
	}
}

// sums are those of two modules.
var sums = []string{strings.Repeat("1", 64), strings.Repeat("2", 64)}

// plugin draws a WasmPlugin of each scope, from a file, or with a module that may be there.
func (d *draw) plugin() *extensions.WasmPlugin {
	out := &extensions.WasmPlugin{Url: "file:///a", Phase: extensions.PluginPhase(rapid.IntRange(0, 3).Draw(d.t, "phase"))}
	if d.one([]string{"", "selector"}, "scope") != "" {
		out.Selector = &apitype.WorkloadSelector{MatchLabels: map[string]string{"app": d.one([]string{"x", "y"}, "app")}}
	}
	if sum := d.one(append([]string{""}, sums...), "sum"); sum != "" {
		out.Url, out.Sha256 = "http://a.example/b", sum
	}
	return out
}

// modules changes which modules are there, and which version of a WasmPlugin was served.
func (d *draw) modules() {
	d.in.Modules = modules.Set{}
	for _, sum := range d.some(sums, "modules") {
		d.in.Modules = d.in.Modules.With(&modules.Module{Sum: sum})
	}
	for _, c := range d.configs.Prefix(modules.PathPrefix) {
		if rapid.Bool().Draw(d.t, "served") {
			was := *c
			was.Spec = d.plugin()
			d.in.Modules = d.in.Modules.Serving(&was)
		}
	}
}

// telemetry draws a Telemetry of each scope.
func (d *draw) telemetry() *telemetryv1.Telemetry {
	out := &telemetryv1.Telemetry{}
	switch d.one([]string{"", "selector", "target"}, "scope") {
	case "selector":
		out.Selector = &apitype.WorkloadSelector{MatchLabels: map[string]string{"app": d.one([]string{"x", "y"}, "app")}}
	case "target":
		out.TargetRefs = []*apitype.PolicyTargetReference{{Kind: "Gateway", Group: "networking.istio.io", Name: d.one([]string{"x", "y"}, "gateway")}}
	}
	mode := telemetryv1.WorkloadMode(rapid.IntRange(0, 2).Draw(d.t, "mode"))
	if rapid.Bool().Draw(d.t, "logs") {
		out.AccessLogging = []*telemetryv1.AccessLogging{{Match: &telemetryv1.AccessLogging_LogSelector{Mode: mode}}}
	}
	if rapid.Bool().Draw(d.t, "traces") {
		out.Tracing = []*telemetryv1.Tracing{{Match: &telemetryv1.Tracing_TracingSelector{Mode: mode}}}
	}
	if rapid.Bool().Draw(d.t, "measures") {
		out.Metrics = []*telemetryv1.Metrics{{Overrides: []*telemetryv1.MetricsOverrides{{Match: &telemetryv1.MetricSelector{Mode: mode}}}}}
	}
	return out
}

// annotatedOrName says what the table has of an object: not more of a group than its annotation.
func annotatedOrName(object *config.Config) string {
	if _, group := object.Spec.(*networking.WorkloadGroup); group {
		return annotated(object)
	}
	return fmt.Sprintf("%p", object)
}

// dump renders a context as text by row, so that two can be compared.
func dump(p *PushContext) map[string]string {
	out := map[string]string{}
	put := func(table, key, value string) { out[table+" "+key] = value }
	is := func(c *config.Config) string { // what is derived is made anew
		if c != nil && p.Derived(c.Key().Path()) != nil {
			return "derived " + c.Key().String()
		}
		return fmt.Sprintf("%p", c)
	}
	for k, r := range fieldRows.rowsOf(p).All() {
		put("fields", k, r.MeshConfig.String())
	}
	for k, r := range ownerRows.rowsOf(p).All() {
		put("owners", k, fmt.Sprint(r.Owner, len(r.services), len(r.grants)))
	}
	for k, g := range claimantRows.rowsOf(p).All() {
		put("claimants", k, fmt.Sprint(slices.Collect(g.Keys())))
	}
	for k, r := range hostRows.rowsOf(p).All() {
		var names []string
		for _, s := range r.Services {
			names = append(names, fmt.Sprintf("%s:%p", s.Namespace, s))
		}
		put("hosts", k, fmt.Sprint(names))
	}
	for table, m := range map[string]pmap.Map[members]{"addresses": addressRows.rowsOf(p), "aliases": aliasRows.rowsOf(p), "wildcards": wildcardRows.rowsOf(p)} {
		for k, g := range m.All() {
			put(table, k, fmt.Sprint(slices.Collect(g.Keys())))
		}
	}
	for k, g := range headlessRows.rowsOf(p).All() {
		for key, w := range g.All() {
			put("headless "+k, key, fmt.Sprint(w))
		}
	}
	for k, g := range portRows.rowsOf(p).All() {
		put("ports", k, fmt.Sprint(slices.Collect(g.Values())))
	}
	for k, r := range derivedRows.rowsOf(p).All() {
		put("derived", k, fmt.Sprint(r.From, r.Routes, r.Object.CreationTimestamp, r.Object.Spec))
	}
	for k, r := range ingressRows.rowsOf(p).All() {
		put("ingresses", k, fmt.Sprintf("%p", r))
	}
	for table, rows := range map[string]pmap.Map[pmap.Map[bool]]{"ingress needs": ingressNeedRows.rowsOf(p), "ingress names": ingressNameRows.rowsOf(p)} {
		for k, g := range rows.All() {
			put(table, k, fmt.Sprint(slices.Collect(g.Keys())))
		}
	}
	for k, g := range ingressHostRows.rowsOf(p).All() {
		put("ingress hosts", k, fmt.Sprint(slices.Collect(g.Keys())))
	}
	for k, r := range routeRows.rowsOf(p).All() {
		var list []string
		for _, vs := range r.VirtualServices {
			list = append(list, fmt.Sprintf("%s %v %v %v %v %v", is(vs.Config), vs.Hosts, vs.Refused, vs.Gateways, vs.ExportTo, vs.Spec.GetHttp()))
		}
		put("routes", k, fmt.Sprint(list))
	}
	for k, vs := range virtualServiceRows.rowsOf(p).All() {
		list := []string{fmt.Sprintf("%s %v", is(vs.Config), rootRows.rowsOf(p).Value(k) != nil)}
		for i := range vs.Spec.GetHttp() {
			o := vs.Origin(i)
			list = append(list, fmt.Sprintf("%s %d %d", is(o.Of.Config), o.Block, o.Root))
		}
		for _, d := range vs.Delegates {
			list = append(list, fmt.Sprintf("%p", d.Config))
		}
		for _, c := range vs.Conflicts {
			list = append(list, fmt.Sprintf("%p %d %d %d %s", c.Of.Config, c.Block, c.Root, c.Match, c.Field))
		}
		put("virtualServices", k, fmt.Sprint(list))
	}
	for k, g := range delegatorRows.rowsOf(p).All() {
		put("delegators", k, fmt.Sprint(slices.Collect(g.Keys())))
	}
	for k, r := range streamRows.rowsOf(p).All() {
		var list []string
		for _, vs := range r.VirtualServices {
			list = append(list, fmt.Sprintf("%p %v", vs.Config, vs.Hosts))
		}
		put("streams", k, fmt.Sprint(list, reversedStreamRows.rowsOf(p).Value(reverse(k)) == r))
	}
	for k, r := range gatewayStreamRows.rowsOf(p).All() {
		var list []string
		for _, vs := range r.VirtualServices {
			list = append(list, fmt.Sprintf("%p", vs.Config))
		}
		put("gateway streams", k, fmt.Sprint(list))
	}
	for table, rows := range map[string]policies{"policies": policyRows, "token rules": tokenRuleRows} {
		for k, r := range rows.rowsOf(p).All() {
			var list []string
			for one := range r.All() {
				list = append(list, fmt.Sprintf("%p", one.Config))
			}
			put(table, k, fmt.Sprint(list))
		}
	}
	for k, g := range probeRows.rowsOf(p).All() {
		for path, row := range g.All() {
			put("probes "+k, path, fmt.Sprint(row.Object, row.Probe, row.account))
		}
	}
	for k, g := range proxyConfigRows.rowsOf(p).All() {
		for path, object := range g.All() {
			put("proxy configs "+k, path, annotatedOrName(object))
		}
	}
	for k, text := range keyRows.rowsOf(p).All() {
		put("keys", k, text)
	}
	for k, r := range secretRows.rowsOf(p).All() {
		put("secrets", k, fmt.Sprintf("%p %v", r.object, r.SecretParts))
	}
	for k, r := range importRows.rowsOf(p).All() {
		var list []string
		for _, i := range r.List {
			list = append(list, fmt.Sprint(*i))
		}
		put("imports", k, fmt.Sprint(list))
	}
	for k, r := range ruleRows.rowsOf(p).All() {
		var list []string
		for _, rule := range r.Rules {
			list = append(list, fmt.Sprintf("%s %s %v %v %v %p", rule.Host, rule.Namespace, rule.ExportTo, rule.Selector.GetMatchLabels(), rule.Configs, rule.Policy))
			for _, s := range rule.Subsets {
				list = append(list, s.GetName(), fmt.Sprint(s.GetLabels()))
			}
		}
		put("rules", k, fmt.Sprint(list))
	}
	for k, g := range attachmentRows.rowsOf(p).All() {
		for name, a := range g.All() {
			put("attached "+k, name, fmt.Sprintf("%v %s %d", a.selector, is(a.object), namingRows.rowsOf(p).Value(k).Value(name)))
		}
	}
	for k, g := range namingRows.rowsOf(p).All() {
		put("namings", k, fmt.Sprint(slices.Collect(g.Keys())))
	}
	for k, row := range reversedRows.rowsOf(p).All() {
		put("reversed", k, string(row.Hostname))
	}
	put("patterns", "", fmt.Sprint(slices.Collect(rulePatternRows.rowsOf(p).Keys()), slices.Collect(routePatternRows.rowsOf(p).Keys())))
	for k, g := range gatewayRows.rowsOf(p).All() {
		put("gateways", k, fmt.Sprintf("%s %v", is(g.Config), g.Servers[0].Hosts))
	}
	for k, r := range peerRows.rowsOf(p).All() {
		var list []string
		for _, policy := range r.All() {
			list = append(list, fmt.Sprintf("%p %v %v", policy.Config, policy.Mode, policy.Selector))
		}
		put("peers", k, fmt.Sprint(list, r.Phase(), r.Stored(), r.Stale()))
	}
	for k, r := range telemetryRows.rowsOf(p).All() {
		for direction := range telemetry.Server + 1 {
			put("telemetry", fmt.Sprint(k, direction), fmt.Sprint(r.Logging(direction), r.Tracing(direction), r.Metrics(direction)))
		}
	}
	for k, r := range pluginRows.rowsOf(p).All() {
		put("plugins", k, fmt.Sprintf("%p %v %v %v", r.Config, r.Module, r.Missing, r.At(plugin.Place{})))
	}
	for k, f := range envoyFilterRows.rowsOf(p).All() {
		put("envoy filters", k, fmt.Sprintf("%p %v %v %v %d", f.Config, f.Narrow(), f.picky, f.shared, len(f.Patches)))
	}
	for k, r := range patchRows.rowsOf(p).All() {
		var list []string
		for _, one := range r.list {
			list = append(list, fmt.Sprintf("%p %d", one.of.Config, one.Index))
		}
		put("patches", k, fmt.Sprint(list))
	}
	for k, r := range sidecarRows.rowsOf(p).All() {
		put("sidecars", k, fmt.Sprintf("%p", r.Config))
	}
	for k, at := range instanceRows.rowsOf(p).All() {
		for service, r := range at.All() {
			var list []string
			for _, e := range r.Endpoints {
				list = append(list, fmt.Sprint(*e))
			}
			put("instances", k+" "+service, fmt.Sprint(list))
		}
	}
	return out
}

// TestNextEqualsNew: a context that follows a random history, change by change or several
// at once, equals the one built from its last inputs.
func TestNextEqualsNew(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := (&draw{t: t}).mesh()
		var p *PushContext
		for range rapid.IntRange(1, 25).Draw(t, "pushes") {
			for range rapid.IntRange(1, 3).Draw(t, "changes") {
				d.step()
			}
			p = p.Next(d.in)
			if diff := cmp.Diff(dump(New(d.in)), dump(p)); diff != "" {
				t.Fatalf("Next differs from New (-new +next):\n%s", diff)
			}
		}
	})
}

// TestDiffOfEqualContextsIsEmpty: rows that did not change have no key in the delta.
func TestDiffOfEqualContextsIsEmpty(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := (&draw{t: t}).mesh()
		for range rapid.IntRange(1, 20).Draw(t, "changes") {
			d.step()
		}
		p := New(d.in)
		d.in.Configs = cache.NewSnapshot(d.revision+1, d.configs)
		next := p.Next(d.in)
		for _, key := range Diff(p, next).Keys() {
			t.Fatalf("%v differs", key)
		}
		if r := Diff(p, next).Request(); r.Full || len(r.ConfigsUpdated) > 0 {
			t.Fatalf("request %+v", r)
		}
	})
}

func TestRequestIsDerived(t *testing.T) {
	t.Parallel()
	object := func(kind string, spec proto.Message) *config.Config {
		return &config.Config{Meta: config.Meta{
			GroupVersionKind: config.GroupVersionKind{Group: networkingGroup, Version: "v1", Kind: kind},
			Name:             "x", Namespace: "shop",
		}, Spec: spec}
	}
	service := rows.NewService([]*discovery.Service{{Hostname: "a.example", Attributes: discovery.Attributes{Namespace: "shop"}}}, nil)
	endpoints := &EndpointRow{Hostname: "a.example", Namespace: "shop", Endpoints: []*discovery.Endpoint{{Address: "10.0.0.1"}}}
	rowKey := serviceEntryKey(rows.Key("a.example", "shop"))
	with := func(c *config.Config) func(*Inputs) {
		return func(in *Inputs) {
			in.Configs = cache.NewSnapshot(2, in.Configs.Configs().Set(c.Key().Path(), c))
		}
	}
	rule := object("DestinationRule", &networking.DestinationRule{Host: "a.example"})
	for _, tc := range []struct {
		name   string
		change func(*Inputs)
		full   bool
		keys   []config.Key
	}{
		{"a config object is a full push naming exactly its key", with(rule), true, []config.Key{rule.Key()}},
		{"a ServiceEntry object pushes by its rows", with(object("ServiceEntry", &networking.ServiceEntry{})), false, nil},
		{"a WorkloadGroup pushes nothing", with(object("WorkloadGroup", &networking.WorkloadGroup{})), false, nil},
		{"a service row is a full push naming its host", func(in *Inputs) {
			in.Services = in.Services.Set(rows.Key("a.example", "shop"), service)
		}, true, []config.Key{rowKey}},
		{"an endpoint row is endpoints only", func(in *Inputs) {
			in.Endpoints = in.Endpoints.Set(rows.Key("a.example", "shop"), endpoints)
		}, false, []config.Key{rowKey}},
	} {
		in := Inputs{MeshFile: meshconfig.Default(), Configs: cache.NewSnapshot(1, pmap.Map[*config.Config]{})}
		from := New(in)
		tc.change(&in)
		r := Diff(from, from.Next(in)).Request()
		var keys []config.Key
		for k := range r.ConfigsUpdated {
			keys = append(keys, k)
		}
		if d := cmp.Diff(tc.keys, keys); d != "" || r.Full != tc.full {
			t.Errorf("%s: full %v, keys (-want +got):\n%s", tc.name, r.Full, d)
		}
	}
}
