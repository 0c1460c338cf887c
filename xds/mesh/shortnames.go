package mesh

import (
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/storage/host"
)

// ShortName is a name that stands for a host in the DNS domain of a proxy, such as
// reviews.shop for reviews.shop.svc.cluster.local.
type ShortName struct {
	Name string
	// Rivals are the hosts that the name rather stands for, if there are services of them.
	Rivals []host.Name
}

// ShortNames returns the short names of a host, as the DNS domain of the proxy completes
// them. A pattern has none. (Istio: GenerateAltVirtualHosts.)
func (v *View) ShortNames(h host.Name) []ShortName {
	answer := v.ask(Self, selfShortNames, string(h)).(string)
	if answer == "" {
		return nil
	}
	var out []ShortName
	for entry := range strings.SplitSeq(answer, ",") {
		parts := strings.Split(entry, "=")
		short := ShortName{Name: parts[0]}
		for _, rival := range parts[1:] {
			short.Rivals = append(short.Rivals, host.Name(rival))
		}
		out = append(out, short)
	}
	return out
}

// formatShortNames is the answer to the query for the short names of a host: each with
// its rivals. Neither "," nor "=" can stand in a host.
func formatShortNames(domain, h string) string {
	var out []string
	for _, name := range host.ShortNames(domain, h) {
		out = append(out, strings.Join(append([]string{name}, host.Rivals(domain, h, name)...), "="))
	}
	return joinComma(out)
}

// Meant returns the hosts that applications beside the proxy may mean by a name, the
// likeliest first: the name itself, the one without a dot at the end, and hosts of which
// it is a short name. It does not record.
func (v *View) Meant(name string) []host.Name {
	name = strings.ToLower(name)
	out := []host.Name{host.Name(name)}
	if without, dotted := strings.CutSuffix(name, "."); dotted {
		out = append(out, host.Name(without))
	}
	for rest, more := v.class.Domain, v.class.Domain != ""; more; _, rest, more = strings.Cut(rest, ".") {
		if h := name + "." + rest; slices.Contains(host.ShortNames(v.class.Domain, h), name) {
			out = append(out, host.Name(h))
		}
	}
	return out
}
