package simulate

import (
	"net/http"
	"net/netip"
	"strings"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

// received returns a request as a connection manager hands it to filters and routes; false if the
// manager refuses it, or the simulation does not know an option.
func received(m *hcmv3.HttpConnectionManager, r Request, result *Result) (Request, bool) {
	if m.GetStripTrailingHostDot() {
		r.Host = withoutDot(r.Host)
	}
	if result.Err = checkPathOptions(m); result.Err != nil {
		return r, false
	}
	if headerSize(r) > maxHeaders(m) {
		result.Status = http.StatusRequestHeaderFieldsTooLarge
		return r, false
	}
	if r.Protocol == GRPC { // its client reads no further option
		return r, true
	}
	path, ok := normalizedPath(m, r.Path)
	if !ok || r.isHTTP1() && !ascii(r.Path) {
		result.Status = http.StatusBadRequest
		return r, false
	}
	if r.Path = path; r.Origin == "" {
		r.Origin = originOf(m, r)
	}
	return withClient(m, r), true
}

const forwardedFor, forwardedProto = "x-forwarded-for", "x-forwarded-proto"

// originOf returns the address of a client as a connection manager finds it: the one that
// x-forwarded-for has so far from the end as the manager trusts proxies, else the peer's.
// https://github.com/envoyproxy/envoy/blob/main/source/common/http/utility.cc
func originOf(m *hcmv3.HttpConnectionManager, r Request) string {
	skipped := int(m.GetXffNumTrustedHops())
	if m.GetUseRemoteAddress().GetValue() { // the peer is the first of the trusted
		if skipped--; skipped < 0 {
			return r.Source
		}
	}
	value, _ := requestHeader(r, forwardedFor)
	list := strings.Split(value, ",")
	if skipped >= len(list) {
		return r.Source
	}
	ip, err := netip.ParseAddr(strings.TrimSpace(list[len(list)-1-skipped]))
	if err != nil {
		return r.Source
	}
	return ip.String()
}

// withClient returns a request with the headers that a connection manager adds before filters and
// routes see it: where it comes from, and by which scheme. For a peer at loopback, Envoy writes an
// address of its machine, which the simulation does not know.
// https://github.com/envoyproxy/envoy/blob/main/source/common/http/conn_manager_utility.cc
func withClient(m *hcmv3.HttpConnectionManager, r Request) Request {
	edge := m.GetUseRemoteAddress().GetValue()
	if edge {
		before, ok := requestHeader(r, forwardedFor)
		if ok {
			before += ","
		}
		r = r.withHeader(forwardedFor, before+r.Source)
	}
	if _, ok := requestHeader(r, forwardedProto); !ok || edge && m.GetXffNumTrustedHops() == 0 {
		r = r.withHeader(forwardedProto, r.scheme())
	}
	return r
}
