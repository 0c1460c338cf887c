package capture

import (
	"fmt"
	"strings"
)

// Table is the table of the packet filter that has all rules.
const Table = "inet portolan"

const (
	// mark is of the packets between a transparent sidecar and its application, and routes the
	// table of routing by which the application's answers get back to the sidecar, as in Istio.
	mark   = 1337
	routes = 133
	// from4 and from6 are the addresses from which the sidecar calls the application.
	from4, from6 = "127.0.0.6", "::6"
	// linkLocal are the IPv6 addresses of one link. A sidecar cannot call them: its clusters do not
	// say of which link they are, and its own source address is of none.
	linkLocal = "fe80::/10"
	priority  = -100 // dstnat
	mangle    = -150
)

// Script returns the rules in the language of nft, which loads them by nft -f. It replaces the table
// as a whole, in one transaction. Equal rules give equal text. The error has all faults of the
// rules.
func (r Rules) Script() (string, error) {
	c, err := r.compile()
	if err != nil {
		return "", err
	}
	w := &writer{}
	w.line("table %s", Table) // so that there is one to delete
	w.line("delete table %s", Table)
	w.open("table %s", Table)
	if !c.Outbound.Off || !c.Inbound.Off || c.DNS.Port != 0 {
		c.output(w)
	}
	if !c.Inbound.Off {
		if c.Mode == TProxy {
			c.transparent(w)
		} else {
			c.prerouting(w)
		}
	}
	w.close()
	return w.String(), nil
}

// output is for what programs of the machine send.
func (c compiled) output(w *writer) {
	w.open("chain output")
	w.line("type nat hook output priority %d; policy accept;", priority)
	c.oneFamily(w)
	w.line("# The sidecar calls the application.")
	w.line("ip saddr %s return", from4)
	w.line("ip6 saddr %s return", from6)
	if c.Mode == TProxy {
		w.line("meta mark %d return", mark)
	}
	if !c.Inbound.Off {
		w.line("# The sidecar calls this machine as it calls others: that comes in.")
		for _, other := range []string{"ip daddr != 127.0.0.0/8", "ip6 daddr != ::1"} {
			w.line(`oifname "lo" meta skuid %s %s%s tcp dport != %s redirect to :%d`, c.proxy, other, only("tcp dport", c.inPorts), set(c.notInPorts), c.InboundPort)
		}
	}
	w.line("meta skuid %s return", set(c.users))
	w.some("meta skgid %s return", c.groups)
	for _, path := range sorted(c.Except.Cgroups) {
		w.line("socket cgroupv2 level %d %q return", strings.Count(path, "/")+1, path)
	}
	if c.DNS.Port != 0 {
		w.line("# Questions for names.")
		for _, protocol := range []string{"udp", "tcp"} {
			w.some("ip daddr %s "+fmt.Sprintf("%s dport 53 redirect to :%d", protocol, c.DNS.Port), c.resolvers.v4)
			w.some("ip6 daddr %s "+fmt.Sprintf("%s dport 53 redirect to :%d", protocol, c.DNS.Port), c.resolvers.v6)
		}
	}
	if !c.Outbound.Off {
		w.line(`oifname "lo" return`)
		if c.IPv6 {
			w.line("ip6 daddr %s return", linkLocal)
		}
		w.some("oifname %s return", quoted(c.ExceptInterfaces))
		w.some("ip daddr %s return", c.notTo.v4)
		w.some("ip6 daddr %s return", c.notTo.v6)
		w.some("tcp dport %s return", c.notOutPorts)
		ports := only("tcp dport", c.outPorts)
		if c.to.empty() {
			w.line("meta l4proto tcp%s redirect to :%d", ports, c.OutboundPort)
		}
		w.some("ip daddr %s meta l4proto tcp"+fmt.Sprintf("%s redirect to :%d", ports, c.OutboundPort), c.to.v4)
		w.some("ip6 daddr %s meta l4proto tcp"+fmt.Sprintf("%s redirect to :%d", ports, c.OutboundPort), c.to.v6)
	}
	w.close()
}

// prerouting is for what comes to addresses of the machine. What the machine forwards is not for
// it.
func (c compiled) prerouting(w *writer) {
	w.open("chain prerouting")
	w.line("type nat hook prerouting priority %d; policy accept;", priority)
	c.comesIn(w)
	w.line("meta l4proto tcp%s redirect to :%d", only("tcp dport", c.inPorts), c.InboundPort)
	w.close()
}

// transparent hands what comes in to the sidecar as it is. The sidecar calls the application from
// the client's address, with packets that have the mark. The connection keeps the mark, so that
// the application's answers find the sidecar.
func (c compiled) transparent(w *writer) {
	w.open("chain prerouting")
	w.line("type filter hook prerouting priority %d; policy accept;", mangle)
	w.line(`iifname "lo" meta mark %d ct mark set %d return`, mark, mark)
	c.comesIn(w)
	ports := only("tcp dport", c.inPorts)
	w.line("meta nfproto ipv4 meta l4proto tcp%s tproxy ip to :%d accept", ports, c.InboundPort)
	w.line("meta nfproto ipv6 meta l4proto tcp%s tproxy ip6 to :%d accept", ports, c.InboundPort)
	w.line("# Without a sidecar that listens, tproxy does not match.")
	w.line("ct state new meta l4proto tcp%s reject with tcp reset", ports)
	w.close()
	w.open("chain answers")
	w.line("type route hook output priority %d; policy accept;", mangle)
	w.line("meta mark != %d ct mark %d meta mark set %d", mark, mark, mark)
	w.close()
}

// comesIn returns from a chain with what does not come in, or is not to be captured. It refuses what
// the sidecar could not pass on, so that nothing gets by it.
func (c compiled) comesIn(w *writer) {
	c.oneFamily(w)
	w.line(`iifname "lo" return`)
	w.some("iifname %s return", quoted(c.ExceptInterfaces))
	w.line("fib daddr type != local return")
	w.line("tcp dport %s return", set(c.notInPorts))
	if c.IPv6 {
		w.line("ip6 daddr %s ct state new meta l4proto tcp%s reject with tcp reset", linkLocal, only("tcp dport", c.inPorts))
	}
}

// oneFamily leaves a family alone that is not to be captured.
func (c compiled) oneFamily(w *writer) {
	if !c.IPv4 {
		w.line("meta nfproto ipv4 return")
	}
	if !c.IPv6 {
		w.line("meta nfproto ipv6 return")
	}
}

// only returns a condition that a value is among some, none if there are none.
func only(what string, values []string) string {
	if len(values) == 0 {
		return ""
	}
	return " " + what + " " + set(values)
}

func set(values []string) string { return "{ " + strings.Join(values, ", ") + " }" }

func quoted(names []string) []string {
	var out []string
	for _, name := range sorted(names) {
		out = append(out, fmt.Sprintf("%q", name))
	}
	return out
}

// writer writes a script.
type writer struct {
	strings.Builder
	depth int
}

func (w *writer) line(format string, args ...any) {
	w.WriteString(strings.Repeat("\t", w.depth) + fmt.Sprintf(format, args...) + "\n")
}

// some writes a line with a set, unless that is empty.
func (w *writer) some(format string, values []string) {
	if len(values) > 0 {
		w.line(format, set(values))
	}
}

func (w *writer) open(format string, args ...any) {
	w.line(format+" {", args...)
	w.depth++
}

func (w *writer) close() {
	w.depth--
	w.line("}")
}
