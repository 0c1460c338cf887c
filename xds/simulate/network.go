package simulate

import (
	"fmt"

	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	networkauthzv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/ext_authz/v3"
	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	networkrbacv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/rbac/v3"
	snidynamicv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/sni_dynamic_forward_proxy/v3"
	tcpv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/tcp_proxy/v3"
	"google.golang.org/protobuf/proto"
)

// networkFilters are the filters of a chain.
type networkFilters struct {
	guards []guard
	// resolver resolves SNI names, nil for none.
	resolver *snidynamicv3.FilterConfig
	// last is the filter that ends the chain: an HTTP connection manager or a TCP proxy.
	last proto.Message
}

// networkFilters fails on filters that the simulation does not know and may not pass over, and on
// filters behind the last.
func (p *Proxy) networkFilters(chain *listenerv3.FilterChain, result *Result) (networkFilters, error) {
	var out networkFilters
	for _, f := range chain.GetFilters() {
		packed, err := p.configOf(f)
		if err != nil {
			return networkFilters{}, err
		}
		config, err := packed.UnmarshalNew()
		if err != nil {
			return networkFilters{}, err
		}
		switch config := config.(type) {
		case *networkrbacv3.RBAC:
			g, err := newAccessGuard(f.GetName(), config)
			if err != nil {
				return networkFilters{}, err
			}
			out.guards = append(out.guards, g)
		case *networkauthzv3.ExtAuthz:
			g, err := newAskGuard(f.GetName(), config)
			if err != nil {
				return networkFilters{}, err
			}
			out.guards = append(out.guards, g)
		case *snidynamicv3.FilterConfig:
			out.resolver = config
		case *hcmv3.HttpConnectionManager, *tcpv3.TcpProxy:
			if out.last != nil {
				return networkFilters{}, fmt.Errorf("the filter %s is behind the last", f.GetName())
			}
			out.last = config
		default:
			if p.passOver(f.GetName(), result) {
				continue
			}
			return networkFilters{}, fmt.Errorf("simulation of %s", proto.MessageName(config))
		}
	}
	if out.last == nil {
		return networkFilters{}, fmt.Errorf("simulation of %d network filters without a last one", len(chain.GetFilters()))
	}
	return out, nil
}
