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
	for _, name := range shortNames(domain, h) {
		out = append(out, strings.Join(append([]string{name}, rivals(domain, h, name)...), "="))
	}
	return joinComma(out)
}

// kubernetesPart is in the domains of Kubernetes, behind the namespace.
const kubernetesPart = ".svc."

// shortNames are what a host is called in a domain.
func shortNames(domain, h string) []string {
	if domain == "" || host.Name(h).IsWildcard() {
		return nil
	}
	if namespace, suffix, ok := strings.Cut(domain, kubernetesPart); ok {
		return kubernetesNames(namespace, kubernetesPart+suffix, h)
	}
	unique, shared := cutShared(strings.Split(h, "."), strings.Split(domain, "."))
	if len(shared) == 0 || len(unique) == 0 {
		return nil
	}
	out := []string{strings.Join(unique, ".")}
	if len(unique) == 2 {
		// The first part is the service, and the second its namespace.
		out = append(out, out[0]+"."+shared[0])
	}
	return slices.DeleteFunc(out, func(name string) bool { return name == h })
}

// kubernetesNames are reviews.shop and reviews.shop.svc, and in namespace shop reviews,
// for reviews.shop.svc.cluster.local.
func kubernetesNames(namespace, suffix, h string) []string {
	name, ok := strings.CutSuffix(h, suffix)
	_, of, dotted := strings.Cut(name, ".")
	if !ok || !dotted || strings.HasSuffix(name, ".svc") {
		return nil
	}
	out := []string{name, name + ".svc"}
	if of == namespace {
		out = append(out, strings.TrimSuffix(name, "."+namespace))
	}
	return out
}

// cutShared cuts the parts that two names have in common at their ends from the first.
func cutShared(name, other []string) (unique, shared []string) {
	n := 0
	for n < min(len(name), len(other)) && name[len(name)-1-n] == other[len(other)-1-n] {
		n++
	}
	return name[:len(name)-n], name[len(name)-n:]
}

// rivals are the hosts that have a short name too, and share more of the domain.
func rivals(domain, h, name string) []string {
	if strings.Contains(domain, kubernetesPart) {
		return nil // which no two hosts share
	}
	var out []string
	for rest, more := domain, true; more; _, rest, more = strings.Cut(rest, ".") {
		other := name + "." + rest
		if other == h {
			break
		}
		if slices.Contains(shortNames(domain, other), name) {
			out = append(out, other)
		}
	}
	return out
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
		if h := name + "." + rest; slices.Contains(shortNames(v.class.Domain, h), name) {
			out = append(out, host.Name(h))
		}
	}
	return out
}
