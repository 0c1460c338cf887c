package capture

import (
	"cmp"
	"fmt"
	"net/netip"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-multierror"
)

// Mode is how connections that come in get to the sidecar. Connections that go out are redirected
// in both modes.
type Mode string

// The modes. With TPROXY the application sees the address of its client, and the sidecar needs the
// capability NET_ADMIN.
const (
	Redirect Mode = "REDIRECT"
	TProxy   Mode = "TPROXY"
)

// The ports of the sidecar and of the agent's DNS proxy, as in Istio, and ssh, which is never
// captured unless Inbound says so.
const (
	DefaultOutboundPort = 15001
	DefaultInboundPort  = 15006
	DefaultDNSPort      = 15053
	ssh                 = "22"
	// own are the ports at which the sidecar and the agent answer for themselves.
	own = "15000-15090"
)

// Rules say which traffic of a machine goes through its sidecar. Mode and ProxyUser are required;
// all other zero values have a meaning of their own: everything but ssh is captured.
type Rules struct {
	Mode Mode `json:"mode,omitempty"`
	// OutboundPort and InboundPort are the sidecar's; 0 stands for the defaults.
	OutboundPort int `json:"outboundPort,omitempty"`
	InboundPort  int `json:"inboundPort,omitempty"`
	// ProxyUser is the user of the sidecar, by name or number. What it sends is not captured, but
	// for what it sends to the machine itself: that comes in like the traffic of other machines.
	ProxyUser string `json:"proxyUser,omitempty"`
	// Without one, the traffic of that family is left alone. Both false stand for both true.
	IPv4 bool `json:"ipv4,omitempty"`
	IPv6 bool `json:"ipv6,omitempty"`

	Outbound Outbound `json:"outbound,omitzero"`
	Inbound  Inbound  `json:"inbound,omitzero"`
	DNS      DNS      `json:"dns,omitzero"`
	// Except exempts programs of the machine, with all that they send.
	Except Programs `json:"except,omitzero"`
	// ExceptInterfaces are network interfaces whose traffic is left alone in both directions.
	ExceptInterfaces []string `json:"exceptInterfaces,omitempty"`
}

// Outbound says which connections that programs of the machine open are captured.
type Outbound struct {
	Off bool `json:"off,omitempty"`
	// Only these, if there are any: ports and ranges of ports (8000-8080), addresses and ranges
	// of addresses (10.0.0.0/8). A connection must fit both.
	Ports     []string `json:"ports,omitempty"`
	Addresses []string `json:"addresses,omitempty"`
	// None of these.
	ExceptPorts     []string `json:"exceptPorts,omitempty"`
	ExceptAddresses []string `json:"exceptAddresses,omitempty"`
}

// Inbound says which connections to the machine's addresses are captured.
type Inbound struct {
	Off bool `json:"off,omitempty"`
	// Only these ports, if there are any. Port 22 is captured only if it is among these.
	Ports       []string `json:"ports,omitempty"`
	ExceptPorts []string `json:"exceptPorts,omitempty"`
}

// DNS says which questions for names go to the agent's DNS proxy.
type DNS struct {
	// Port is the proxy's; 0 captures none.
	Port int `json:"port,omitempty"`
	// Resolvers are the addresses whose port 53 is captured, over UDP and TCP.
	Resolvers []string `json:"resolvers,omitempty"`
}

// Programs are programs by whom they run as, and by where (a path of cgroup v2 without a slash
// before it, such as system.slice/backup.service).
type Programs struct {
	Users   []string `json:"users,omitempty"`
	Groups  []string `json:"groups,omitempty"`
	Cgroups []string `json:"cgroups,omitempty"`
}

// compiled are rules whose values are checked and in order.
type compiled struct {
	Rules
	proxy                 string
	users, groups         []string
	outPorts, notOutPorts []string
	inPorts, notInPorts   []string
	to, notTo, resolvers  families
}

// families are addresses by family.
type families struct{ v4, v6 []string }

func (f families) empty() bool { return len(f.v4) == 0 && len(f.v6) == 0 }

// compile checks the rules. The error has all faults, each with its field.
func (r Rules) compile() (compiled, error) {
	var faults *multierror.Error
	fault := func(field, format string, args ...any) {
		faults = multierror.Append(faults, fmt.Errorf("capture.%s: %s", field, fmt.Sprintf(format, args...)))
	}
	c := compiled{Rules: r}
	if r.Mode != Redirect && r.Mode != TProxy {
		fault("mode", "is %q: set %s or %s", r.Mode, Redirect, TProxy)
	}
	if !r.IPv4 && !r.IPv6 {
		c.IPv4, c.IPv6 = true, true
	}
	port := func(field string, port *int, otherwise int) {
		if *port == 0 {
			*port = otherwise
		}
		if *port < 1 || *port > 65535 {
			fault(field, "%d is no port", *port)
		}
	}
	port("outboundPort", &c.OutboundPort, DefaultOutboundPort)
	port("inboundPort", &c.InboundPort, DefaultInboundPort)
	if c.DNS.Port != 0 {
		port("dns.port", &c.DNS.Port, 0)
	}
	ids := func(field string, values []string, look func(string) (string, error)) []string {
		var out []string
		for _, v := range values {
			id, err := look(v)
			if err != nil {
				fault(field, "%q: %v", v, err)
			}
			out = append(out, id)
		}
		return sorted(out)
	}
	if r.ProxyUser == "" {
		fault("proxyUser", "is missing: name the user of the sidecar")
	} else {
		c.proxy = ids("proxyUser", []string{r.ProxyUser}, UserID)[0]
	}
	c.users = sorted(append(ids("except.users", r.Except.Users, UserID), c.proxy))
	c.groups = ids("except.groups", r.Except.Groups, groupID)
	for _, path := range r.Except.Cgroups {
		if path == "" || strings.HasPrefix(path, "/") || strings.ContainsAny(path, "\"\n") {
			fault("except.cgroups", "%q: write a path below the root of cgroup v2, such as system.slice/backup.service", path)
		}
	}
	for _, name := range r.ExceptInterfaces {
		if name == "" || len(name) > 15 || strings.ContainsAny(name, "\"/ \n") {
			fault("exceptInterfaces", "%q is no name of an interface", name)
		}
	}
	ports := func(field string, values ...string) []string {
		var all []portRange
		for _, v := range values {
			one, ok := parsePorts(v)
			if !ok {
				fault(field, "%q: write a port, or two with a dash between them", v)
			}
			all = append(all, one)
		}
		return merged(all)
	}
	c.outPorts, c.notOutPorts = ports("outbound.ports", r.Outbound.Ports...), ports("outbound.exceptPorts", r.Outbound.ExceptPorts...)
	c.inPorts = ports("inbound.ports", r.Inbound.Ports...)
	except := append([]string{own}, r.Inbound.ExceptPorts...)
	if !slices.Contains(r.Inbound.Ports, ssh) {
		except = append(except, ssh)
	}
	c.notInPorts = ports("inbound.exceptPorts", except...)
	addresses := func(field string, values []string) families {
		var all []netip.Prefix
		for _, v := range values {
			prefix, err := parsePrefix(v)
			if err != nil {
				fault(field, "%q: write an address, or a range such as 10.0.0.0/8", v)
				continue
			}
			all = append(all, prefix)
		}
		return byFamily(all)
	}
	c.to, c.notTo = addresses("outbound.addresses", r.Outbound.Addresses), addresses("outbound.exceptAddresses", r.Outbound.ExceptAddresses)
	c.resolvers = addresses("dns.resolvers", r.DNS.Resolvers)
	if c.DNS.Port != 0 && c.resolvers.empty() {
		fault("dns.resolvers", "is missing: name the resolvers of the machine")
	}
	return c, faults.ErrorOrNil()
}

// Validate returns all faults of the rules, each with its field.
func (r Rules) Validate() error {
	_, err := r.compile()
	return err
}

func sorted(values []string) []string { return slices.Compact(slices.Sorted(slices.Values(values))) }

// portRange are the ports from the first to the last.
type portRange struct{ first, last uint64 }

func parsePorts(text string) (r portRange, ok bool) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err := strconv.ParseUint(from, 10, 16)
	last, err2 := strconv.ParseUint(to, 10, 16)
	return portRange{first, last}, err == nil && err2 == nil && first > 0 && last >= first
}

// merged returns ranges in order, joined where they overlap: nft refuses a set in which they do.
func merged(all []portRange) []string {
	slices.SortFunc(all, func(a, b portRange) int { return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last)) })
	var joined []portRange
	for _, r := range all {
		if last := len(joined) - 1; last >= 0 && r.first <= joined[last].last+1 {
			joined[last].last = max(joined[last].last, r.last)
		} else {
			joined = append(joined, r)
		}
	}
	var out []string
	for _, r := range joined {
		if r.first == r.last {
			out = append(out, strconv.FormatUint(r.first, 10))
		} else {
			out = append(out, fmt.Sprintf("%d-%d", r.first, r.last))
		}
	}
	return out
}

// byFamily returns prefixes in order, without those that others contain.
func byFamily(all []netip.Prefix) (out families) {
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	var last netip.Prefix
	for _, p := range all {
		switch {
		case last.IsValid() && last.Contains(p.Addr()):
			continue
		case p.Addr().Is4():
			out.v4 = append(out.v4, p.String())
		default:
			out.v6 = append(out.v6, p.String())
		}
		last = p
	}
	return out
}

func parsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		return prefix, err
	}
	return prefix.Masked(), nil
}

// UserID returns the number of a user, by name or number.
func UserID(name string) (string, error) {
	if _, err := strconv.ParseUint(name, 10, 32); err == nil {
		return name, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}

// groupID returns the number of a group, by name or number.
func groupID(name string) (string, error) {
	if _, err := strconv.ParseUint(name, 10, 32); err == nil {
		return name, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", err
	}
	return g.Gid, nil
}
