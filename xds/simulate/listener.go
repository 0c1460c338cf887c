package simulate

import (
	"cmp"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	listenerv3 "github.com/envoyproxy/go-control-plane/envoy/config/listener/v3"
	"google.golang.org/protobuf/proto"
)

// accepts returns the listener of a connection. If the proxy captures traffic,
// virtualInbound takes inbound connections, and the listener with use_original_dst hands
// outbound ones to the listener of their original destination.
func (p *Proxy) accepts(r Request) *listenerv3.Listener {
	bound := func(l *listenerv3.Listener) bool { return l.GetBindToPort() == nil || l.GetBindToPort().GetValue() }
	if path, ok := strings.CutPrefix(r.Address, "unix://"); ok {
		return p.socket(path)
	}
	in, out := p.Listener("virtualInbound"), p.handsOff()
	ip, _ := netip.ParseAddr(r.Address)
	switch {
	case r.Inbound && in != nil:
		return in
	case !r.Inbound && out != nil && !ip.IsLoopback():
		return cmp.Or(p.at(r, func(l *listenerv3.Listener) bool { return l != out }), out)
	}
	return p.at(r, bound)
}

// socket returns the listener of a Unix domain socket, nil for none.
func (p *Proxy) socket(path string) *listenerv3.Listener {
	for _, l := range p.listeners {
		if l.GetAddress().GetPipe().GetPath() == path {
			return l
		}
	}
	return nil
}

// handsOff returns the listener with use_original_dst, nil for none.
func (p *Proxy) handsOff() *listenerv3.Listener {
	for _, l := range p.listeners {
		if l.GetUseOriginalDst().GetValue() {
			return l
		}
	}
	return nil
}

// at returns the listener of the address, else the wildcard listener of the port.
func (p *Proxy) at(r Request, of func(*listenerv3.Listener) bool) *listenerv3.Listener {
	ip, _ := netip.ParseAddr(r.Address)
	var wildcard *listenerv3.Listener
	for _, l := range p.listeners {
		if !of(l) || l.GetUdpListenerConfig() != nil { // no client speaks QUIC
			continue
		}
		for _, a := range listenerAddresses(l) {
			if int(a.GetPortValue()) != r.Port {
				continue
			}
			switch own, _ := netip.ParseAddr(a.GetAddress()); {
			case a.GetAddress() == r.Address || own == ip && ip.IsValid():
				return l
			case own.IsUnspecified() && own.Is4() == ip.Is4():
				wildcard = l
			}
		}
	}
	return wildcard
}

func listenerAddresses(l *listenerv3.Listener) []*corev3.SocketAddress {
	out := []*corev3.SocketAddress{l.GetAddress().GetSocketAddress()}
	for _, a := range l.GetAdditionalAddresses() {
		out = append(out, a.GetAddress().GetSocketAddress())
	}
	return out
}

// filterChain chooses the chain of a connection as Envoy does: by one property after
// another. Chains that name the connection's value win over chains that name none. Envoy
// never goes back a step.
// https://github.com/envoyproxy/envoy/issues/3471
func filterChain(l *listenerv3.Listener, r Request) (*listenerv3.FilterChain, error) {
	for _, c := range l.GetFilterChains() {
		if other := proto.CloneOf(c.GetFilterChainMatch()); other != nil {
			other.DestinationPort, other.PrefixRanges, other.TransportProtocol, other.ApplicationProtocols, other.ServerNames = nil, nil, "", nil, nil
			if proto.Size(other) > 0 {
				return nil, fmt.Errorf("listener %s: simulation of the filter chain match %v", l.GetName(), c.GetFilterChainMatch())
			}
		}
	}
	ip, _ := netip.ParseAddr(r.Address)
	chains := narrow(l.GetFilterChains(), func(m *listenerv3.FilterChainMatch) (int, bool) {
		return rank(m.GetDestinationPort() != nil, int(m.GetDestinationPort().GetValue()) == r.Port)
	})
	chains = narrow(chains, func(m *listenerv3.FilterChainMatch) (int, bool) { return prefixRank(m, ip) })
	transport, name := handshake(l, r)
	chains = narrow(chains, func(m *listenerv3.FilterChainMatch) (int, bool) { return nameRank(m, name) })
	chains = narrow(chains, func(m *listenerv3.FilterChainMatch) (int, bool) {
		return rank(m.GetTransportProtocol() != "", m.GetTransportProtocol() == transport)
	})
	offered := []string{inspected(l, r)}
	if transport == "tls" {
		offered = r.ALPN
	}
	chains = narrow(chains, func(m *listenerv3.FilterChainMatch) (int, bool) { return protocolRank(m, offered) })
	switch {
	case len(chains) > 1:
		return nil, fmt.Errorf("listener %s: several filter chains match alike, which Envoy refuses", l.GetName())
	case len(chains) == 1:
		return chains[0], nil
	case l.GetDefaultFilterChain() != nil:
		return l.GetDefaultFilterChain(), nil
	}
	return nil, fmt.Errorf("listener %s: %w", l.GetName(), ErrNoFilterChain)
}

// narrow keeps the matching chains of the highest rank.
func narrow(in []*listenerv3.FilterChain, rankOf func(*listenerv3.FilterChainMatch) (int, bool)) []*listenerv3.FilterChain {
	var out []*listenerv3.FilterChain
	best := -1
	for _, c := range in {
		switch rank, ok := rankOf(c.GetFilterChainMatch()); {
		case !ok || rank < best:
		case rank > best:
			out, best = []*listenerv3.FilterChain{c}, rank
		default:
			out = append(out, c)
		}
	}
	return out
}

// rank prefers a match that names a property to one that does not.
func rank(names, matches bool) (int, bool) {
	if names {
		return 1, matches
	}
	return 0, true
}

// protocolRank ranks by the first protocol of the client that a chain names.
func protocolRank(m *listenerv3.FilterChainMatch, offered []string) (int, bool) {
	for i, p := range offered {
		if slices.Contains(m.GetApplicationProtocols(), p) {
			return len(offered) - i, true
		}
	}
	return 0, len(m.GetApplicationProtocols()) == 0
}

// prefixRank ranks by the length of the longest address range that contains the address.
func prefixRank(m *listenerv3.FilterChainMatch, ip netip.Addr) (int, bool) {
	best, ok := 0, len(m.GetPrefixRanges()) == 0
	for _, p := range m.GetPrefixRanges() {
		own, _ := netip.ParseAddr(p.GetAddressPrefix())
		if bits := int(p.GetPrefixLen().GetValue()); netip.PrefixFrom(own, bits).Contains(ip) {
			best, ok = max(best, 1+bits), true
		}
	}
	return best, ok
}

// nameRank ranks by the length of the longest name or pattern that covers the SNI. An
// exact name beats all patterns.
func nameRank(m *listenerv3.FilterChainMatch, name string) (int, bool) {
	best, ok := 0, len(m.GetServerNames()) == 0
	for _, own := range m.GetServerNames() {
		suffix, wild := strings.CutPrefix(own, "*")
		switch {
		case name == "":
		case own == name:
			return math.MaxInt, true
		case wild && strings.HasSuffix(name, suffix):
			best, ok = max(best, len(own)), true
		}
	}
	return best, ok
}

// handshake returns what the TLS inspector finds: the transport protocol and the SNI.
// Without the inspector every connection looks like plaintext.
func handshake(l *listenerv3.Listener, r Request) (transport, name string) {
	const inspector = "type.googleapis.com/envoy.extensions.filters.listener.tls_inspector.v3.TlsInspector"
	for _, f := range l.GetListenerFilters() {
		if f.GetTypedConfig().GetTypeUrl() == inspector && r.encrypted() && !disabled(f.GetFilterDisabled(), r.Port) {
			return "tls", strings.ToLower(r.SNI)
		}
	}
	return "raw_buffer", ""
}

// inspected returns the protocol that the HTTP inspector detects, empty for none, for HTTP/1.1 with
// bytes that are no ASCII, or if the inspector is disabled.
func inspected(l *listenerv3.Listener, r Request) string {
	const inspector = "type.googleapis.com/envoy.extensions.filters.listener.http_inspector.v3.HttpInspector"
	for _, f := range l.GetListenerFilters() {
		if f.GetTypedConfig().GetTypeUrl() == inspector && r.Protocol != TCP && !r.encrypted() && !disabled(f.GetFilterDisabled(), r.Port) && (!r.isHTTP1() || ascii(r.Path)) {
			return string(r.Protocol)
		}
	}
	return ""
}

// disabled says whether a predicate of ports matches.
func disabled(p *listenerv3.ListenerFilterChainMatchPredicate, port int) bool {
	if r := p.GetDestinationPortRange(); r != nil {
		return int32(port) >= r.GetStart() && int32(port) < r.GetEnd()
	}
	if p.GetNotMatch() != nil {
		return !disabled(p.GetNotMatch(), port)
	}
	return slices.ContainsFunc(p.GetOrMatch().GetRules(), func(rule *listenerv3.ListenerFilterChainMatchPredicate) bool {
		return disabled(rule, port)
	})
}
