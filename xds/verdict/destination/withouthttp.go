package destination

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// settings are those of TrafficPolicy and PortTrafficPolicy that may be for HTTP.
type settings interface {
	balanced
	GetConnectionPool() *networking.ConnectionPoolSettings
}

// withoutHTTP warns of settings for HTTP where no port that they are for may speak HTTP.
func (j *judge) withoutHTTP(spec *networking.DestinationRule, services []*mesh.ServiceRow) {
	if len(services) == 0 {
		return
	}
	for path, policy := range verdict.PoliciesOf(spec) {
		if !speakHTTP(services, 0) {
			j.pointlessWithoutHTTP(policy, path, "no port of the service")
			if policy.GetRetryBudget() != nil {
				j.pointless(path+".retryBudget", "no port of the service", "leave it out: connections are not retried")
			}
		}
		for i, port := range policy.GetPortLevelSettings() {
			if number := int(port.GetPort().GetNumber()); number != 0 && !speakHTTP(services, number) {
				j.pointlessWithoutHTTP(port, verdict.At(path+".portLevelSettings", i), fmt.Sprintf("no port %d of the service", number))
			}
		}
	}
}

// speakHTTP says whether a port of the services with a number, any for 0, may speak HTTP. A port
// that is not there counts: another verdict is about it.
func speakHTTP(services []*mesh.ServiceRow, number int) bool {
	some := false
	for _, s := range services {
		for _, p := range s.Ports() {
			if number != 0 && p.Number != number {
				continue
			}
			if some = true; p.Protocol.IsHTTP() || p.Protocol == discovery.Unsupported {
				return true
			}
		}
	}
	return !some
}

func (j *judge) pointlessWithoutHTTP(s settings, path, none string) {
	switch hash := s.GetLoadBalancer().GetConsistentHash(); hash.GetHashKey().(type) {
	case *networking.LoadBalancerSettings_ConsistentHashLB_HttpHeaderName, *networking.LoadBalancerSettings_ConsistentHashLB_HttpCookie,
		*networking.LoadBalancerSettings_ConsistentHashLB_HttpQueryParameterName:
		j.pointless(path+".loadBalancer.consistentHash", none, "hash by useSourceIp, or declare the protocol of the port as HTTP, HTTP2 or GRPC")
	}
	// The limit of pending requests holds for connections, too.
	if http := s.GetConnectionPool().GetHttp(); http != nil {
		others := proto.CloneOf(http)
		if others.Http1MaxPendingRequests = 0; proto.Size(others) > 0 {
			j.pointless(path+".connectionPool.http", none, "use connectionPool.tcp, or declare the protocol of the port as HTTP, HTTP2 or GRPC")
		}
	}
	if len(s.GetOutlierDetection().GetOutlierDetectionHttpErrorCodes()) > 0 {
		j.pointless(path+".outlierDetection.outlierDetectionHttpErrorCodes", none, "leave it out: connections have no status")
	}
}

func (j *judge) pointless(field, none, remedy string) {
	j.Add(verdict.Verdict{Code: verdict.Unexpected, Field: field, Message: "has no effect: " + none + " speaks HTTP", Remedy: remedy})
}
