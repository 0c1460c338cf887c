package upstream

import (
	"cmp"
	"math"
	"time"

	clusterv3 "github.com/envoyproxy/go-control-plane/envoy/config/cluster/v3"
	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	commondnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/common/dns/v3"
	dnsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/clusters/dns/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/envoy/socket"
	"github.com/portolan-mesh/portolan/xds/names"
)

// ClusterType says how a cluster gets its endpoints.
type ClusterType int

// The cluster types.
const (
	// EDS clusters get their endpoints over ADS, under the cluster's name.
	EDS ClusterType = iota
	// Static clusters have IP addresses and Unix domain sockets as endpoints.
	Static
	// StrictDNS clusters have host names as endpoints; every address that a name resolves
	// to is an endpoint.
	StrictDNS
	// LogicalDNS clusters have one host name; new connections use the first address that
	// it resolves to.
	LogicalDNS
	// OriginalDst clusters forward to the original destination.
	OriginalDst
	// DynamicDNS clusters forward to the host of a request, or to the SNI name of a TLS
	// connection. DynamicDNSFilter or SNIDynamicDNSFilter must resolve it first.
	DynamicDNS
)

const dnsClusterType = "envoy.clusters.dns"

// DNSFamily says which address families a DNS cluster resolves.
type DNSFamily = commondnsv3.DnsLookupFamily

// The families. All races both, like a dual-stack host.
const (
	DNSv4Only = commondnsv3.DnsLookupFamily_V4_ONLY
	DNSv6Only = commondnsv3.DnsLookupFamily_V6_ONLY
	DNSAll    = commondnsv3.DnsLookupFamily_ALL
)

// ClusterOptions describe a cluster.
type ClusterOptions struct {
	Name string
	Type ClusterType
	// AltStatName is the name in statistics, names.AltStat of Name if empty.
	AltStatName string
	// Endpoints are the endpoints of a Static, StrictDNS or LogicalDNS cluster.
	Endpoints []Endpoints
	DNS       DNSOptions
	// PortOverride, in an OriginalDst cluster, replaces the client's port.
	PortOverride uint32
	// SourceAddresses are the source addresses of connections, at most one of each
	// family. If there are none, the system chooses.
	SourceAddresses []string
	// ConnectTimeout 0 means Envoy's 5 s.
	ConnectTimeout  time.Duration
	LoadBalancer    LoadBalancer
	CircuitBreakers CircuitBreakers
	// HTTP says how to speak HTTP; nil for a TCP cluster, which would speak HTTP/1.1.
	HTTP *HTTP
	// Outliers ejects endpoints that fail; nil for no ejection.
	Outliers *OutlierDetection
	// Check is the active health check of the endpoints, nil for none.
	Check *HealthCheck
	// ProxyProtocol is the version of the PROXY protocol that tells endpoints the
	// client's address; 0 for none.
	ProxyProtocol socket.ProxyProtocolVersion
	// Transport encrypts connections, after the PROXY protocol header; nil for plaintext.
	Transport *corev3.TransportSocket
	// TransportMatches choose the socket of an endpoint by its metadata, the first that
	// matches. If there are any, Transport is for endpoints that none matches.
	TransportMatches []TransportMatch
	// Keepalive sends TCP keep-alive probes; nil for none.
	Keepalive *Keepalive
	// BufferLimit bounds what is buffered of a connection, softly, in bytes; 0 means Envoy's MiB.
	BufferLimit uint32
	Metadata    message.ClusterMetadata
}

// DNSOptions describe how a DNS cluster resolves. A DynamicDNS cluster uses only the
// family.
type DNSOptions struct {
	Family DNSFamily
	// RefreshRate is the wait after a failed resolution; 0 means Envoy's 5 s. After a
	// success, the answer's TTL decides.
	RefreshRate time.Duration
}

// CircuitBreakers limit a cluster; 0 means no limit.
type CircuitBreakers struct {
	MaxConnections, MaxPendingRequests, MaxRequests, MaxRetries uint32
	// RetryBudget, if not nil, replaces MaxRetries.
	RetryBudget *RetryBudget
}

// RetryBudget limits retries to a percentage of the active requests, or of the requests
// in the last Interval. MinConcurrency retries are always allowed at a time.
type RetryBudget struct {
	Percent        float64
	MinConcurrency uint32
	Interval       time.Duration
}

// Keepalive are TCP keep-alive settings; 0 leaves a setting to the system.
type Keepalive struct {
	Probes         uint32
	Time, Interval time.Duration
}

// Cluster makes a cluster.
func Cluster(o ClusterOptions) *clusterv3.Cluster {
	c := &clusterv3.Cluster{
		Name:            o.Name,
		AltStatName:     cmp.Or(o.AltStatName, names.AltStat(o.Name)),
		ConnectTimeout:  message.Seconds(o.ConnectTimeout),
		CircuitBreakers: o.CircuitBreakers.message(),
		Metadata:        o.Metadata.Message(),

		PerConnectionBufferLimitBytes: message.Count(o.BufferLimit),
	}
	o.LoadBalancer.apply(c)
	o.applyType(c)
	c.UpstreamBindConfig = bindConfig(o.SourceAddresses)
	c.OutlierDetection = o.Outliers.message()
	o.Check.apply(c)
	c.TransportSocket = o.ProxyProtocol.Wrap(o.Transport)
	for _, m := range o.TransportMatches {
		c.TransportSocketMatches = append(c.TransportSocketMatches, m.message(o.ProxyProtocol))
	}
	if matcher := o.Outliers.errorMatcher(); o.HTTP != nil || matcher != nil || o.Type == DynamicDNS {
		http := *cmp.Or(o.HTTP, &HTTP{})
		if o.Type == DynamicDNS && o.Transport == nil {
			http.AutoSNI, http.AutoSAN = true, true // Envoy asks for it
		}
		c.TypedExtensionProtocolOptions = http.extension(matcher)
	}
	if k := o.Keepalive; k != nil {
		c.UpstreamConnectionOptions = &clusterv3.UpstreamConnectionOptions{TcpKeepalive: &corev3.TcpKeepalive{
			KeepaliveProbes:   message.Count(k.Probes),
			KeepaliveTime:     message.Count(wholeSeconds(k.Time)),
			KeepaliveInterval: message.Count(wholeSeconds(k.Interval)),
		}}
	}
	return c
}

// TransportMatch is a transport socket for endpoints whose metadata has a TLS mode.
type TransportMatch struct {
	// Name is what Envoy's statistics call it.
	Name string
	// TLSMode is as in EndpointMetadata.
	TLSMode string
	// Transport encrypts connections.
	Transport *corev3.TransportSocket
}

func (m TransportMatch) message(proxyProtocol socket.ProxyProtocolVersion) *clusterv3.Cluster_TransportSocketMatch {
	return &clusterv3.Cluster_TransportSocketMatch{
		Name:            m.Name,
		Match:           &structpb.Struct{Fields: map[string]*structpb.Value{"tlsMode": structpb.NewStringValue(m.TLSMode)}},
		TransportSocket: proxyProtocol.Wrap(m.Transport),
	}
}

// BlackHoleCluster makes the cluster without endpoints, for traffic that must go nowhere.
func BlackHoleCluster(connectTimeout time.Duration) *clusterv3.Cluster {
	return Cluster(ClusterOptions{Name: names.BlackHoleCluster, Type: Static, ConnectTimeout: connectTimeout})
}

// PassthroughCluster describes the cluster for unknown destinations, which it forwards to
// unchanged. keepalive is nil for no probes.
func PassthroughCluster(connectTimeout time.Duration, keepalive *Keepalive) ClusterOptions {
	return ClusterOptions{
		Name: names.PassthroughCluster, Type: OriginalDst, ConnectTimeout: connectTimeout, Keepalive: keepalive,
		HTTP: &HTTP{Protocol: UseDownstream},
	}
}

// InboundPassthroughCluster describes the cluster for traffic to a workload's unknown ports,
// which it forwards to unchanged. Its connections come from the source addresses, like
// those of names.InboundCluster.
func InboundPassthroughCluster(connectTimeout time.Duration, sourceAddresses ...string) ClusterOptions {
	return ClusterOptions{
		Name: names.InboundPassthroughCluster, Type: OriginalDst, ConnectTimeout: connectTimeout,
		SourceAddresses: sourceAddresses,
		HTTP:            &HTTP{Protocol: UseDownstream},
	}
}

// bindConfig sets the source addresses of connections, nil for none. The first is used if
// the destination is of neither family.
func bindConfig(addresses []string) *corev3.BindConfig {
	if len(addresses) == 0 {
		return nil
	}
	out := &corev3.BindConfig{SourceAddress: message.Address(addresses[0], 0).GetSocketAddress()}
	for _, a := range addresses[1:] {
		out.ExtraSourceAddresses = append(out.ExtraSourceAddresses, &corev3.ExtraSourceAddress{Address: message.Address(a, 0).GetSocketAddress()})
	}
	return out
}

func (o ClusterOptions) applyType(c *clusterv3.Cluster) {
	switch o.Type {
	case EDS:
		c.ClusterDiscoveryType = builtin(clusterv3.Cluster_EDS)
		c.EdsClusterConfig = &clusterv3.Cluster_EdsClusterConfig{EdsConfig: message.ADS(), ServiceName: o.Name}
	case Static:
		c.ClusterDiscoveryType = builtin(clusterv3.Cluster_STATIC)
	case StrictDNS, LogicalDNS:
		// The separate message replaces deprecated fields of Cluster.
		c.ClusterDiscoveryType = &clusterv3.Cluster_ClusterType{ClusterType: &clusterv3.Cluster_CustomClusterType{
			Name: dnsClusterType,
			TypedConfig: message.Pack(&dnsv3.DnsCluster{
				DnsRefreshRate:               message.Seconds(o.DNS.RefreshRate),
				RespectDnsTtl:                true,
				DnsLookupFamily:              o.DNS.Family,
				AllAddressesInSingleEndpoint: o.Type == LogicalDNS,
			}),
		}}
	case DynamicDNS:
		c.ClusterDiscoveryType = dynamicDNS(o.DNS.Family, o.Transport != nil && (o.HTTP == nil || !o.HTTP.AutoSNI || !o.HTTP.AutoSAN))
		c.LbPolicy, c.LbConfig = clusterv3.Cluster_CLUSTER_PROVIDED, nil
	case OriginalDst:
		c.ClusterDiscoveryType = builtin(clusterv3.Cluster_ORIGINAL_DST)
		c.LbPolicy, c.LbConfig = clusterv3.Cluster_CLUSTER_PROVIDED, nil
		if o.PortOverride != 0 {
			c.LbConfig = &clusterv3.Cluster_OriginalDstLbConfig_{
				OriginalDstLbConfig: &clusterv3.Cluster_OriginalDstLbConfig{UpstreamPortOverride: wrapperspb.UInt32(o.PortOverride)},
			}
		}
	}
	if len(o.Endpoints) > 0 && (o.Type == Static || o.Type == StrictDNS || o.Type == LogicalDNS) {
		c.LoadAssignment = LoadAssignment(o.Name, o.Endpoints)
	}
}

func builtin(t clusterv3.Cluster_DiscoveryType) *clusterv3.Cluster_Type {
	return &clusterv3.Cluster_Type{Type: t}
}

func (b CircuitBreakers) message() *clusterv3.CircuitBreakers {
	return &clusterv3.CircuitBreakers{Thresholds: []*clusterv3.CircuitBreakers_Thresholds{{
		MaxConnections:     limit(b.MaxConnections),
		MaxPendingRequests: limit(b.MaxPendingRequests),
		MaxRequests:        limit(b.MaxRequests),
		MaxRetries:         limit(b.MaxRetries),
		RetryBudget:        b.RetryBudget.message(),
		TrackRemaining:     true,
	}}}
}

func (b *RetryBudget) message() *clusterv3.CircuitBreakers_Thresholds_RetryBudget {
	if b == nil {
		return nil
	}
	return &clusterv3.CircuitBreakers_Thresholds_RetryBudget{
		BudgetPercent: &typev3.Percent{Value: b.Percent}, BudgetInterval: message.Seconds(b.Interval),
		MinRetryConcurrency: wrapperspb.UInt32(b.MinConcurrency),
	}
}

func limit(n uint32) *wrapperspb.UInt32Value {
	if n == 0 {
		n = math.MaxUint32
	}
	return wrapperspb.UInt32(n)
}

// LBPolicy says how a cluster chooses an endpoint.
type LBPolicy int

// The policies; LeastRequest is the default.
const (
	LeastRequest LBPolicy = iota
	RoundRobin
	Random
	RingHash
	Maglev
)

// LoadBalancer describes how a cluster distributes requests. An OriginalDst or DynamicDNS
// cluster has no choice and ignores the policy.
type LoadBalancer struct {
	Policy LBPolicy
	// MinimumRingSize of RingHash is at most LargestRing; 0 means 1024.
	MinimumRingSize uint64
	// TableSize of Maglev is a prime; 0 means Envoy's 65537.
	TableSize uint64
	// WarmUp is the slow start of LeastRequest and RoundRobin; nil for none.
	WarmUp *WarmUp
	// PanicThreshold is the percentage of healthy endpoints below which health is
	// ignored. Nil means Envoy's 50; 0 means never.
	PanicThreshold *float64
	// LocalityWeighted distributes over localities by their weights. It excludes Zones.
	LocalityWeighted bool
	// Zones says whether a proxy with a local cluster prefers its own zone. Nil means
	// Envoy's default: it does.
	Zones *Zones
}

// Zones describes how a proxy with a local cluster balances load between zones. It sends
// as much as it can to its own zone, as long as all endpoints get the same load. RingHash
// and Maglev ignore it.
type Zones struct {
	Enabled bool
	// MinClusterSize is the least number of endpoints for which it applies; 0 means
	// Envoy's 6.
	MinClusterSize uint32
}

const (
	// LargestRing limits the size of rings. Envoy accepts larger ones, but then blocks
	// for seconds at each change of an endpoint.
	LargestRing            = 1 << 20
	defaultMinimumRingSize = 1024
	// largestGrownRing limits how far Envoy may enlarge a ring so that the endpoint with
	// the least weight has an entry. Envoy's own limit is eight million entries, 400 MB,
	// for weights like 1 and 4294967295.
	largestGrownRing = 1 << 14
)

func (l LoadBalancer) apply(c *clusterv3.Cluster) {
	switch l.Policy {
	case LeastRequest:
		c.LbPolicy = clusterv3.Cluster_LEAST_REQUEST
		if s := l.WarmUp.message(); s != nil {
			c.LbConfig = &clusterv3.Cluster_LeastRequestLbConfig_{
				LeastRequestLbConfig: &clusterv3.Cluster_LeastRequestLbConfig{SlowStartConfig: s},
			}
		}
	case RoundRobin:
		c.LbPolicy = clusterv3.Cluster_ROUND_ROBIN
		if s := l.WarmUp.message(); s != nil {
			c.LbConfig = &clusterv3.Cluster_RoundRobinLbConfig_{
				RoundRobinLbConfig: &clusterv3.Cluster_RoundRobinLbConfig{SlowStartConfig: s},
			}
		}
	case Random:
		c.LbPolicy = clusterv3.Cluster_RANDOM
	case RingHash:
		size := l.MinimumRingSize
		if size == 0 {
			size = defaultMinimumRingSize
		}
		c.LbPolicy = clusterv3.Cluster_RING_HASH
		size = min(size, LargestRing)
		c.LbConfig = &clusterv3.Cluster_RingHashLbConfig_{
			RingHashLbConfig: &clusterv3.Cluster_RingHashLbConfig{
				MinimumRingSize: wrapperspb.UInt64(size), MaximumRingSize: wrapperspb.UInt64(max(size, largestGrownRing)),
			},
		}
	case Maglev:
		c.LbPolicy = clusterv3.Cluster_MAGLEV
		if l.TableSize != 0 {
			c.LbConfig = &clusterv3.Cluster_MaglevLbConfig_{
				MaglevLbConfig: &clusterv3.Cluster_MaglevLbConfig{TableSize: wrapperspb.UInt64(l.TableSize)},
			}
		}
	}
	c.CommonLbConfig = l.common()
}

// WarmUp raises the share of a new endpoint over its first Window, starting at MinPercent
// of its weight. An Aggression of 1 is linear; larger values raise the share faster at
// first.
type WarmUp struct {
	Window     time.Duration
	MinPercent float64
	Aggression float64
}

func (w *WarmUp) message() *clusterv3.Cluster_SlowStartConfig {
	if w == nil {
		return nil
	}
	return &clusterv3.Cluster_SlowStartConfig{
		SlowStartWindow:  message.Seconds(w.Window),
		Aggression:       &corev3.RuntimeDouble{DefaultValue: w.Aggression, RuntimeKey: "slow_start.aggression"},
		MinWeightPercent: &typev3.Percent{Value: w.MinPercent},
	}
}

func (l LoadBalancer) common() *clusterv3.Cluster_CommonLbConfig {
	if l.PanicThreshold == nil && !l.LocalityWeighted && l.Zones == nil {
		return nil
	}
	out := &clusterv3.Cluster_CommonLbConfig{}
	if l.PanicThreshold != nil {
		out.HealthyPanicThreshold = &typev3.Percent{Value: *l.PanicThreshold}
	}
	switch {
	case l.LocalityWeighted:
		out.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig_{
			LocalityWeightedLbConfig: &clusterv3.Cluster_CommonLbConfig_LocalityWeightedLbConfig{},
		}
	case l.Zones != nil:
		out.LocalityConfigSpecifier = &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig_{ZoneAwareLbConfig: l.Zones.message()}
	}
	return out
}

func (z *Zones) message() *clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig {
	out := &clusterv3.Cluster_CommonLbConfig_ZoneAwareLbConfig{RoutingEnabled: &typev3.Percent{}}
	if z.Enabled {
		out.RoutingEnabled.Value = 100
	}
	if z.MinClusterSize > 0 {
		out.MinClusterSize = wrapperspb.UInt64(uint64(z.MinClusterSize))
	}
	return out
}

// wholeSeconds rounds up, so no positive duration becomes 0.
func wholeSeconds(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	return uint32(min((d+time.Second-1)/time.Second, math.MaxUint32))
}
