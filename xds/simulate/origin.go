package simulate

import (
	"net/netip"
	"strings"

	hcmv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
)

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
	value, _ := requestHeader(r, "x-forwarded-for")
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
