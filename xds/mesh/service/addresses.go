package service

import (
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
)

// Addresses returns the keys of all addresses of a host, over its namespaces.
func (r *Host) Addresses() []string {
	if r == nil {
		return nil
	}
	var out []string
	for _, row := range r.Services {
		for _, address := range class.AllAddresses(row) {
			out = append(out, AddressKey(address))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// AddressKey returns the canonical spelling of an address.
func AddressKey(address string) string {
	if !strings.Contains(address, ":") {
		return address
	}
	if ip, err := netip.ParseAddr(address); err == nil {
		return ip.Unmap().String()
	}
	return address
}

// SocketKey is the key of an address and port.
func SocketKey(address string, port int) string { return AddressKey(address) + "|" + PortKey(port) }

// SplitSocketKey is the inverse of SocketKey.
func SplitSocketKey(key string) (address string, port int) {
	address, text, _ := strings.Cut(key, "|")
	port, _ = strconv.Atoi(text)
	return address, port
}

// Sockets iterates over the ports without HTTP of a headless service, each with the endpoints at
// whose addresses clients call it. Other services have none.
func Sockets(s *rows.Service, endpoints []*discovery.Endpoint) iter.Seq2[int, *discovery.Endpoint] {
	return func(yield func(int, *discovery.Endpoint) bool) {
		if !s.Headless() {
			return
		}
		for _, p := range s.Ports() {
			if !p.Protocol.IsServed() || p.Protocol.IsHTTP() {
				continue
			}
			for _, e := range endpoints {
				if e.IsFor(p) && isIP(e.Address) && !yield(p.Number, e) {
					return
				}
			}
		}
	}
}

// isIP says whether an address is an IP, and so no host name and no socket.
func isIP(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && ip.Zone() == ""
}

// TouchedAddresses returns the addresses of endpoints that may differ. It skips the equal
// endpoints at the beginning and the end, since a change leaves other endpoints in place.
func TouchedAddresses(old, curr []*discovery.Endpoint) map[string]bool {
	for len(old) > 0 && len(curr) > 0 && old[0].Equal(curr[0]) {
		old, curr = old[1:], curr[1:]
	}
	for len(old) > 0 && len(curr) > 0 && old[len(old)-1].Equal(curr[len(curr)-1]) {
		old, curr = old[:len(old)-1], curr[:len(curr)-1]
	}
	out := map[string]bool{}
	for _, e := range slices.Concat(old, curr) {
		out[AddressKey(e.Address)] = true
	}
	return out
}

// ByAddress groups the endpoints at touched addresses by address.
func ByAddress(endpoints []*discovery.Endpoint, touched map[string]bool) map[string][]*discovery.Endpoint {
	out := map[string][]*discovery.Endpoint{}
	for _, e := range endpoints {
		if key := AddressKey(e.Address); touched[key] {
			out[key] = append(out[key], e)
		}
	}
	return out
}
