package mesh

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
)

// Claim is a way in which a service lays claim to a port number.
type Claim string

// The claims. A service may make several to one port.
const (
	// ClaimHTTP: it speaks HTTP there, and shares the port with all that do.
	ClaimHTTP Claim = "http"
	// ClaimTCP: it does not say that it speaks HTTP there.
	ClaimTCP Claim = "tcp"
	// ClaimOpen is ClaimTCP of a service without an address: it claims the port at
	// every address.
	ClaimOpen Claim = "open"
	// ClaimUndeclared is ClaimOpen of a port whose protocol is not declared.
	ClaimUndeclared Claim = "undeclared"
	// ClaimRange is ClaimTCP of a service that has a range of addresses.
	ClaimRange Claim = "range"
)

// claimant is a service that makes a claim.
type claimant struct {
	host      host.Name
	namespace string
}

// claimIndex has the services that make a claim to a port, by ClaimKey, the oldest
// first. It changes with who claims, and not with what else is known of them.
type claimIndex struct {
	rows pmap.Map[pmap.Map[claimant]]
}

// ClaimKey is the key of a claim to a port in the table of claims.
func ClaimKey(c Claim, port int) string { return string(c) + "/" + portKey(port) }

// next follows a host from one row to the next, either of which may be nil.
func (x claimIndex) next(old, row *HostRow) claimIndex {
	before, after := old.claims(), row.claims()
	for of := range before {
		if _, still := after[of]; !still {
			x.rows = withMember(x.rows, of.claim, of.age, claimant{}, false)
		}
	}
	for of, c := range after {
		if _, already := before[of]; !already {
			x.rows = withMember(x.rows, of.claim, of.age, c, true)
		}
	}
	return x
}

// claimOf is a claim of a service of a certain age; the ages of no two are equal.
type claimOf struct{ claim, age string }

// claims are those of the services of a host.
func (r *HostRow) claims() map[claimOf]claimant {
	if r == nil {
		return nil
	}
	out := map[claimOf]claimant{}
	for _, s := range r.Services {
		age := s.age()
		for _, p := range s.Ports() {
			for c := range s.claimsTo(p) {
				out[claimOf{ClaimKey(c, p.Number), age}] = claimant{s.Hostname, s.Namespace}
			}
		}
	}
	return out
}

// claimsTo are the claims of a service to one of its ports.
func (r *ServiceRow) claimsTo(p discovery.Port) iter.Seq[Claim] {
	return func(yield func(Claim) bool) {
		switch {
		case !p.Protocol.IsServed():
			return
		case p.Protocol.IsHTTP():
			yield(ClaimHTTP)
			return
		}
		open := r.Open()
		_ = yield(ClaimTCP) &&
			(!open || yield(ClaimOpen)) &&
			(!open || p.Protocol != discovery.Unsupported || yield(ClaimUndeclared)) &&
			(len(r.Ranges()) == 0 || yield(ClaimRange))
	}
}

// age sorts as CompareServices does.
func (r *ServiceRow) age() string {
	s := r.Service()
	const beforeAll = 1 << 40 // seconds, so that no time is negative
	return fmt.Sprintf("%020d\x00%s\x00%s\x00%s\x00%s", s.CreationTime.Unix()+beforeAll,
		s.Attributes.Name, s.Attributes.Namespace, r.Hostname, r.Namespace)
}

// Open says whether the service is called under an address of which nothing is
// known: it has none, and was given none.
func (r *ServiceRow) Open() bool {
	return slices.ContainsFunc(r.Services, func(s *discovery.Service) bool {
		ip, err := netip.ParseAddr(s.Address)
		return err == nil && ip.IsUnspecified() && s.AutoAllocatedIPv4 == "" && s.AutoAllocatedIPv6 == ""
	})
}

// Ranges are the ranges of addresses under which the service is called, in the
// order of its services.
func (r *ServiceRow) Ranges() []netip.Prefix {
	var out []netip.Prefix
	for _, s := range r.Services {
		if p, err := netip.ParsePrefix(s.Address); err == nil && !slices.Contains(out, p.Masked()) {
			out = append(out, p.Masked())
		}
	}
	return out
}

// Claimants are the services that make a claim to a port and that the proxy sees
// through a listener, the oldest first. Those who stop early depend on no younger
// one.
func (v *View) Claimants(l EgressListener, c Claim, port int) iter.Seq[*ServiceRow] {
	return func(yield func(*ServiceRow) bool) {
		for who := range v.ask(Claims, ClaimKey(c, port), "").(pmap.Map[claimant]).Values() {
			if s := v.ServiceAt(l, who.host); s.is(who) && !yield(s) {
				return
			}
		}
	}
}

// is says whether a service is the one that makes a claim: that of its namespace.
func (r *ServiceRow) is(c claimant) bool { return r != nil && r.Namespace == c.namespace }

// Claimed says whether any service that the proxy sees through a listener makes a
// claim to a port. Where one does, nothing is recorded but that one.
func (v *View) Claimed(l EgressListener, c Claim, port int) bool {
	unrecorded := *v
	unrecorded.reads = nil
	for s := range unrecorded.Claimants(l, c, port) {
		return v.ServiceAt(l, s.Hostname) != nil
	}
	for range v.Claimants(l, c, port) {
		return true
	}
	return false
}
