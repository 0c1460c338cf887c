package upstream_test

import (
	"math"
	"slices"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/portolan-mesh/portolan/xds/envoy/envoytest"
	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
)

const (
	ads       = `{"ads": {}, "initialFetchTimeout": "0s", "resourceApiVersion": "V3"}`
	unlimited = `{"thresholds": [{"maxConnections": 4294967295, "maxPendingRequests": 4294967295, "maxRequests": 4294967295,
		"maxRetries": 4294967295, "trackRemaining": true}]}`
	oneEndpoint = `{"clusterName": "c", "endpoints": [{"locality": {}, "loadBalancingWeight": 1, "lbEndpoints": [
		{"loadBalancingWeight": 1, "endpoint": {"address": {"socketAddress": {"address": "h", "portValue": 80}}}}]}]}`
)

func TestCluster(t *testing.T) {
	t.Parallel()
	endpoints := []upstream.Endpoints{{Endpoints: []upstream.Endpoint{{Host: "h", Port: 80}}}}
	threshold := 0.0
	for name, c := range map[string]struct {
		options upstream.ClusterOptions
		want    string
	}{
		"endpoints over ADS": {
			upstream.ClusterOptions{Name: "c", ConnectTimeout: 10 * time.Second},
			`"type": "EDS", "edsClusterConfig": {"edsConfig": ` + ads + `, "serviceName": "c"},
			 "connectTimeout": "10s", "lbPolicy": "LEAST_REQUEST"`,
		},
		"static": {
			upstream.ClusterOptions{Name: "c", Type: upstream.Static, Endpoints: endpoints},
			`"type": "STATIC", "loadAssignment": ` + oneEndpoint + `, "lbPolicy": "LEAST_REQUEST"`,
		},
		"strict DNS": {
			upstream.ClusterOptions{
				Name: "c", Type: upstream.StrictDNS, Endpoints: endpoints,
				DNS:          upstream.DNSOptions{Family: upstream.DNSv4Only, RefreshRate: time.Minute},
				LoadBalancer: upstream.LoadBalancer{Policy: upstream.RoundRobin},
			},
			`"clusterType": {"name": "envoy.clusters.dns", "typedConfig": {
				"@type": "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster",
				"dnsRefreshRate": "60s", "respectDnsTtl": true, "dnsLookupFamily": "V4_ONLY"}},
			 "loadAssignment": ` + oneEndpoint,
		},
		"logical DNS": {
			upstream.ClusterOptions{Name: "c", Type: upstream.LogicalDNS, Endpoints: endpoints, DNS: upstream.DNSOptions{Family: upstream.DNSAll}},
			`"clusterType": {"name": "envoy.clusters.dns", "typedConfig": {
				"@type": "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster",
				"respectDnsTtl": true, "dnsLookupFamily": "ALL", "allAddressesInSingleEndpoint": true}},
			 "loadAssignment": ` + oneEndpoint + `, "lbPolicy": "LEAST_REQUEST"`,
		},
		"original destination ignores policy and endpoints": {
			upstream.ClusterOptions{
				Name: "c", Type: upstream.OriginalDst, Endpoints: endpoints, PortOverride: 8080,
				LoadBalancer: upstream.LoadBalancer{Policy: upstream.RingHash},
			},
			`"type": "ORIGINAL_DST", "lbPolicy": "CLUSTER_PROVIDED", "originalDstLbConfig": {"upstreamPortOverride": 8080}`,
		},
		"ring": {
			upstream.ClusterOptions{Name: "c", Type: upstream.Static, LoadBalancer: upstream.LoadBalancer{Policy: upstream.RingHash}},
			`"type": "STATIC", "lbPolicy": "RING_HASH", "ringHashLbConfig": {"minimumRingSize": "1024", "maximumRingSize": "16384"}`,
		},
		"maglev": {
			upstream.ClusterOptions{Name: "c", Type: upstream.Static, LoadBalancer: upstream.LoadBalancer{Policy: upstream.Maglev, TableSize: 251}},
			`"type": "STATIC", "lbPolicy": "MAGLEV", "maglevLbConfig": {"tableSize": "251"}`,
		},
		"random, never in panic, by locality": {
			upstream.ClusterOptions{Name: "c", Type: upstream.Static, LoadBalancer: upstream.LoadBalancer{
				Policy: upstream.Random, PanicThreshold: &threshold, LocalityWeighted: true,
			}},
			`"type": "STATIC", "lbPolicy": "RANDOM", "commonLbConfig": {"healthyPanicThreshold": {}, "localityWeightedLbConfig": {}}`,
		},
		"slow start": {
			upstream.ClusterOptions{Name: "c", Type: upstream.Static, LoadBalancer: upstream.LoadBalancer{
				Policy: upstream.RoundRobin, WarmUp: &upstream.WarmUp{Window: time.Minute, MinPercent: 10, Aggression: 1},
			}},
			`"type": "STATIC", "roundRobinLbConfig": {"slowStartConfig": {"slowStartWindow": "60s",
				"aggression": {"defaultValue": 1, "runtimeKey": "slow_start.aggression"}, "minWeightPercent": {"value": 10}}}`,
		},
		"keep-alive, in whole seconds": {
			upstream.ClusterOptions{Name: "c", Type: upstream.Static, Keepalive: &upstream.Keepalive{
				Probes: 3, Time: time.Hour, Interval: 1500 * time.Millisecond,
			}},
			`"type": "STATIC", "lbPolicy": "LEAST_REQUEST", "upstreamConnectionOptions": {"tcpKeepalive": {
				"keepaliveProbes": 3, "keepaliveTime": 3600, "keepaliveInterval": 2}}`,
		},
		"metadata": {
			upstream.ClusterOptions{Name: "c", Type: upstream.Static, Metadata: message.ClusterMetadata{
				Config: "/apis/x", Subset: "v1", External: true,
				Services: []message.ServiceRef{{Host: "h.example.com", Name: "h", Namespace: "ns"}},
			}},
			`"type": "STATIC", "lbPolicy": "LEAST_REQUEST", "metadata": {"filterMetadata": {"istio": {"config": "/apis/x",
				"subset": "v1", "external": true, "services": [{"host": "h.example.com", "name": "h", "namespace": "ns"}]}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := upstream.Cluster(c.options)
			envoytest.Check(t, got, `{"name": "c", "altStatName": "c;", "circuitBreakers": `+unlimited+`, `+c.want+`}`)
			if kind := envoytest.ClusterTypeOf(got); kind != c.options.Type {
				t.Errorf("its type is read as %d, want %d", kind, c.options.Type)
			}
		})
	}
}

func TestCircuitBreakers(t *testing.T) {
	t.Parallel()
	envoytest.Check(t, upstream.Cluster(upstream.ClusterOptions{
		Name: "c", Type: upstream.Static, AltStatName: "mine",
		CircuitBreakers: upstream.CircuitBreakers{MaxConnections: 1, MaxPendingRequests: 2, MaxRequests: 3, MaxRetries: 4},
	}), `{"name": "c", "altStatName": "mine", "type": "STATIC", "lbPolicy": "LEAST_REQUEST", "circuitBreakers": {"thresholds": [
		{"maxConnections": 1, "maxPendingRequests": 2, "maxRequests": 3, "maxRetries": 4, "trackRemaining": true}]}}`)
}

func TestUpstreamHTTP(t *testing.T) {
	t.Parallel()
	const http2 = `{"maxConcurrentStreams": 1073741824}`
	for name, c := range map[string]struct {
		options upstream.HTTP
		want    string
	}{
		"version 1": {upstream.HTTP{}, `"explicitHttpConfig": {"httpProtocolOptions": {}}`},
		"version 2": {
			upstream.HTTP{Protocol: upstream.HTTP2, MaxConcurrentStreams: 7},
			`"explicitHttpConfig": {"http2ProtocolOptions": {"maxConcurrentStreams": 7}}`,
		},
		"pings": {
			upstream.HTTP{Protocol: upstream.HTTP2, PingInterval: 30 * time.Second, PingTimeout: 5 * time.Second},
			`"explicitHttpConfig": {"http2ProtocolOptions": {"maxConcurrentStreams": 1073741824,
				"connectionKeepalive": {"interval": "30s", "timeout": "5s"}}}`,
		},
		"the client's, with limits": {
			upstream.HTTP{
				Protocol: upstream.UseDownstream, IdleTimeout: durationpb.New(time.Second), MaxConnectionDuration: time.Minute, MaxRequestsPerConnection: 1,
			},
			`"commonHttpProtocolOptions": {"idleTimeout": "1s", "maxConnectionDuration": "60s", "maxRequestsPerConnection": 1},
			 "useDownstreamProtocolConfig": {"httpProtocolOptions": {}, "http2ProtocolOptions": ` + http2 + `}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			envoytest.Check(t, upstream.Cluster(upstream.ClusterOptions{Name: "c", Type: upstream.Static, HTTP: &c.options}),
				`{"name": "c", "altStatName": "c;", "type": "STATIC", "lbPolicy": "LEAST_REQUEST", "circuitBreakers": `+unlimited+`,
				  "typedExtensionProtocolOptions": {"envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
				  "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions", `+c.want+`}}}`)
		})
	}
}

func TestClustersForTheUnknown(t *testing.T) {
	t.Parallel()
	hole := upstream.BlackHoleCluster(time.Second)
	if hole.GetName() != "BlackHoleCluster" || envoytest.ClusterTypeOf(hole) != upstream.Static || hole.GetLoadAssignment() != nil {
		t.Errorf("the black hole leads somewhere: %v", hole)
	}
	through := upstream.Cluster(upstream.PassthroughCluster(time.Second, nil))
	if through.GetName() != "PassthroughCluster" || envoytest.ClusterTypeOf(through) != upstream.OriginalDst {
		t.Errorf("the passthrough does not pass through: %v", through)
	}
	envoytest.CheckValid(t, hole)
	envoytest.CheckValid(t, through)
}

func TestLoadAssignment(t *testing.T) {
	t.Parallel()
	envoytest.Check(t, upstream.LoadAssignment("c", []upstream.Endpoints{
		{Locality: "r/z/s", Endpoints: []upstream.Endpoint{
			{Host: "10.0.0.1", Port: 80, Weight: 3, Metadata: message.EndpointMetadata{Workload: "w;ns;;;", TLSMode: "istio"}},
			{Host: "::1", Port: 80, Health: corev3.HealthStatus_UNHEALTHY},
		}},
		{Locality: "empty"},
		{Locality: "r", Priority: 1, Weight: 9, Endpoints: []upstream.Endpoint{{Host: "unix:///run/s.sock", Port: 1}}},
	}), `{"clusterName": "c", "endpoints": [
		{"locality": {"region": "r", "zone": "z", "subZone": "s"}, "loadBalancingWeight": 4, "lbEndpoints": [
			{"loadBalancingWeight": 3, "endpoint": {"address": {"socketAddress": {"address": "10.0.0.1", "portValue": 80}}},
			 "metadata": {"filterMetadata": {"istio": {"workload": "w;ns;;;"}, "envoy.transport_socket_match": {"tlsMode": "istio"}}}},
			{"loadBalancingWeight": 1, "healthStatus": "UNHEALTHY",
			 "endpoint": {"address": {"socketAddress": {"address": "::1", "portValue": 80}}}}]},
		{"locality": {"region": "r"}, "loadBalancingWeight": 9, "priority": 1, "lbEndpoints": [
			{"loadBalancingWeight": 1, "endpoint": {"address": {"pipe": {"path": "/run/s.sock"}}}}]}]}`)
	envoytest.Check(t, upstream.LoadAssignment("none", nil), `{"clusterName": "none"}`)
}

func TestWeightsFit(t *testing.T) {
	t.Parallel()
	for name, weights := range map[string][][]uint32{
		"one locality":       {{math.MaxUint32, math.MaxUint32, 1}},
		"several localities": {{math.MaxUint32}, {math.MaxUint32 / 2, 1}, {1, 1, 1}},
		"just too many":      {{math.MaxUint32, 1}},
	} {
		var localities []upstream.Endpoints
		for _, l := range weights {
			var e upstream.Endpoints
			for _, w := range l {
				e.Endpoints = append(e.Endpoints, upstream.Endpoint{Host: "10.0.0.1", Port: 1, Weight: w})
			}
			localities = append(localities, e)
		}
		var total, all uint64
		for i, l := range upstream.LoadAssignment("c", localities).GetEndpoints() {
			var sum uint64
			var got []uint32
			for _, e := range l.GetLbEndpoints() {
				got = append(got, e.GetLoadBalancingWeight().GetValue())
				sum += uint64(got[len(got)-1])
			}
			total += uint64(l.GetLoadBalancingWeight().GetValue())
			all += sum
			if sum > math.MaxUint32 || slices.Contains(got, 0) || got[0] < slices.Max(got) {
				t.Errorf("%s: locality %d has %v, whose sum is %d", name, i, got, sum)
			}
		}
		if total > math.MaxUint32 || all > math.MaxUint32 {
			t.Errorf("%s: the sum over localities is %d, over endpoints %d", name, total, all)
		}
	}
}

func TestAddress(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"10.0.0.1":           `{"socketAddress": {"address": "10.0.0.1", "portValue": 80}}`,
		"::1":                `{"socketAddress": {"address": "::1", "portValue": 80}}`,
		"[::1]":              `{"socketAddress": {"address": "::1", "portValue": 80}}`,
		"db.example.com":     `{"socketAddress": {"address": "db.example.com", "portValue": 80}}`,
		"unix:///run/s.sock": `{"pipe": {"path": "/run/s.sock"}}`,
		"/run/s.sock":        `{"pipe": {"path": "/run/s.sock"}}`,
		"unix://@abstract":   `{"pipe": {"path": "@abstract"}}`,
	} {
		envoytest.Check(t, message.Address(host, 80), want)
	}
}

func TestEqualOptionsEqualBytes(t *testing.T) {
	t.Parallel()
	build := func() []byte {
		m := upstream.Cluster(upstream.ClusterOptions{
			Name: "c", HTTP: &upstream.HTTP{},
			Metadata: message.ClusterMetadata{Config: "a", Subset: "b", External: true, Services: []message.ServiceRef{{}, {}}},
		})
		out, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	first := build()
	for range 20 {
		if !slices.Equal(first, build()) {
			t.Fatal("the bytes differ")
		}
	}
}
