package kube_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/kube"
	"github.com/portolan-mesh/portolan/discovery/kube/kubetest"
)

// TestServices: what each sort of Service becomes.
func TestServices(t *testing.T) {
	t.Parallel()
	local, close, none := corev1.ServiceInternalTrafficPolicyLocal, "PreferClose", "PreferNone"
	a := kubetest.New(t)
	for name, edit := range map[string]func(*corev1.Service){
		"headless": func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone },
		"dual": func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.7", []string{"10.96.0.7", "fd00::7"}
		},
		"external": func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ClusterIP, s.Spec.ExternalName, s.Spec.Selector = corev1.ServiceTypeExternalName, "", "DB.example.", nil
		},
		"reached": func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{"192.0.2.1"}
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.2"}, {Hostname: "lb.example"}}
		},
		"private": func(s *corev1.Service) {
			s.Annotations = map[string]string{"networking.istio.io/exportTo": "., other"}
		},
		"portless": func(s *corev1.Service) { s.Spec.Ports = nil },
		"name": func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ClusterIP, s.Spec.ExternalName, s.Spec.Selector, s.Spec.Ports = corev1.ServiceTypeExternalName, "", "db.example", nil, nil
		},
		"close": func(s *corev1.Service) { s.Spec.TrafficDistribution = &close },
		"near": func(s *corev1.Service) {
			s.Annotations = map[string]string{"networking.istio.io/traffic-distribution": "prefersamenode"}
		},
		"odd": func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy, s.Spec.TrafficDistribution, s.Spec.SessionAffinity = &local, &none, corev1.ServiceAffinityClientIP
			s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "sctp", Port: 81, Protocol: corev1.ProtocolSCTP}, corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP})
		},
	} {
		a.Put(kubetest.NewService("shop", name, edit))
	}
	names, unnumbered := kubetest.NewSlice("shop", "odd", 80), kubetest.NewSlice("shop", "portless", 80)
	names.AddressType, unnumbered.Ports[0].Port = discoveryv1.AddressTypeFQDN, nil
	a.Put(names, unnumbered)
	r := newRig(t, kube.Options{})
	one, _ := r.follow(a, "east")
	got := map[string]string{}
	for _, s := range one.Services() {
		got[s.Attributes.Name] = fmt.Sprintf("%s %v %s external=%v %v exportTo=%v ports=%d %s local=%v", s.Address, s.ClusterVIPs, s.Resolution, s.MeshExternal, s.Attributes.ClusterExternalAddresses, s.Attributes.ExportTo, len(s.Ports), s.Attributes.Distribution, s.Attributes.NodeLocal)
	}
	expect(t, got, map[string]string{
		"headless": "0.0.0.0 map[] Passthrough external=false map[] exportTo=[] ports=1  local=false",
		"dual":     "10.96.0.7 map[east:[10.96.0.7 fd00::7]] ClientSideLB external=false map[] exportTo=[] ports=1  local=false",
		"external": "0.0.0.0 map[] DNSLB external=true map[east:[db.example]] exportTo=[] ports=1  local=false",
		"name":     "0.0.0.0 map[] DNSLB external=true map[east:[db.example]] exportTo=[] ports=0  local=false",
		"reached":  "10.96.0.1 map[east:[10.96.0.1]] ClientSideLB external=false map[east:[192.0.2.1 192.0.2.2 lb.example]] exportTo=[] ports=1  local=false",
		"private":  "10.96.0.1 map[east:[10.96.0.1]] ClientSideLB external=false map[] exportTo=[other shop] ports=1  local=false",
		"portless": "10.96.0.1 map[east:[10.96.0.1]] ClientSideLB external=false map[] exportTo=[] ports=0  local=false",
		"close":    "10.96.0.1 map[east:[10.96.0.1]] ClientSideLB external=false map[] exportTo=[] ports=1 PreferSameZone local=false",
		"near":     "10.96.0.1 map[east:[10.96.0.1]] ClientSideLB external=false map[] exportTo=[] ports=1 PreferSameNode local=false",
		"odd":      "10.96.0.1 map[east:[10.96.0.1]] ClientSideLB external=false map[] exportTo=[] ports=2  local=true",
	})
	expect(t, r.endpoints("shop", "external.shop.svc.cluster.local"), []string{"http=db.example:80"})
	expect(t, r.clusters.Status()[0].Flaws, []kube.Flaw{
		{Object: "Service shop/odd", Reason: "port 81 is of SCTP, which no proxy serves: left out"},
		{Object: "Service shop/odd", Reason: "port 53 is of UDP, which no proxy serves: clients call it past their proxy"},
		{Object: "Service shop/odd", Reason: "internalTrafficPolicy Local: proxies on machines are on no node of the cluster, and get none of its pods"},
		{Object: "Service shop/odd", Reason: "sessionAffinity ClientIP has no effect: set consistentHash.useSourceIp in a DestinationRule"},
		{Object: "Service shop/odd", Reason: `trafficDistribution "PreferNone" is no traffic distribution, and has no effect: use PreferSameZone or PreferSameNode`},
		{Object: "Service shop/portless", Reason: "it has no port: no proxy serves it"},
		{Object: "EndpointSlice shop/odd-abc", Reason: "it has host names, which no proxy resolves for a Service: use the type ExternalName, or a ServiceEntry"},
		{Object: "EndpointSlice shop/portless-abc", Reason: "a port has no number: left out"},
	})
}

// TestProtocols: what a port says of its protocol.
func TestProtocols(t *testing.T) {
	t.Parallel()
	a := kubetest.New(t)
	var ports []corev1.ServicePort
	var want []discovery.Protocol
	for _, c := range []struct {
		name, app string
		number    int32
		want      discovery.Protocol
	}{
		{"http", "", 80, discovery.HTTP},
		{"http2-api", "", 81, discovery.HTTP2},
		{"grpc-web-api", "", 82, discovery.GRPCWeb},
		{"grpc-web", "", 83, discovery.GRPCWeb},
		{"grpc-api", "", 84, discovery.GRPC},
		{"web", "", 85, discovery.Unsupported},
		{"db", "", 3306, discovery.TCP},
		{"mysql-db", "", 3307, discovery.MySQL},
		{"http-a", "tcp", 86, discovery.TCP},
		{"tcp-a", "kubernetes.io/h2c", 87, discovery.HTTP2},
		{"tcp-b", "kubernetes.io/wss", 88, discovery.HTTPS},
		{"http-b", "example.com/own", 89, discovery.Unsupported},
	} {
		p := corev1.ServicePort{Name: c.name, Port: c.number}
		if c.app != "" {
			p.AppProtocol = &c.app
		}
		ports, want = append(ports, p), append(want, c.want)
	}
	a.Put(kubetest.NewService("shop", "web", func(s *corev1.Service) { s.Spec.Ports = ports }))
	r := newRig(t, kube.Options{})
	one, _ := r.follow(a, "east")
	var got []discovery.Protocol
	for _, p := range one.GetService(webHost).Ports {
		got = append(got, p.Protocol)
	}
	expect(t, got, want)
}

// TestWhatIsNoEndpoint: pods that have ended or have no address are known to nobody, and slices of
// no Service make none.
func TestWhatIsNoEndpoint(t *testing.T) {
	t.Parallel()
	a, _, _, slice := shop(t)
	ended := kubetest.NewPod("shop", "ended", "10.0.0.9", map[string]string{"app": "web"})
	ended.Status.Phase = corev1.PodSucceeded
	pending := kubetest.NewPod("shop", "pending", "", map[string]string{"app": "web"})
	stray := slice.DeepCopy()
	stray.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "stray"}
	a.Put(ended, pending, stray)
	r := newRig(t, kube.Options{})
	r.follow(a, "east")
	status := r.clusters.Status()[0]
	expect(t, []int{status.Services, status.Endpoints, status.Pods}, []int{1, 2, 2})
}
