package host

import (
	"slices"
	"strings"
)

// kubernetesPart follows the namespace in DNS domains of Kubernetes.
const kubernetesPart = ".svc."

// ShortName is a name that stands for a host in the DNS domain of a proxy, such as
// reviews.shop for reviews.shop.svc.cluster.local.
type ShortName struct {
	Name string
	// Rivals are the hosts that the name stands for instead, if they have services.
	Rivals []Name
}

// FormatShortNames writes the short names of a host, each with its rivals, as
// ParseShortNames reads them. No host contains "," or "=".
func FormatShortNames(domain, h string) string {
	var out []string
	for _, name := range ShortNames(domain, h) {
		out = append(out, strings.Join(append([]string{name}, Rivals(domain, h, name)...), "="))
	}
	return strings.Join(out, ",")
}

// ParseShortNames reads what FormatShortNames wrote.
func ParseShortNames(s string) []ShortName {
	if s == "" {
		return nil
	}
	var out []ShortName
	for entry := range strings.SplitSeq(s, ",") {
		name, rivals, _ := strings.Cut(entry, "=")
		short := ShortName{Name: name}
		for rivals != "" {
			name, rivals, _ = strings.Cut(rivals, "=")
			short.Rivals = append(short.Rivals, Name(name))
		}
		out = append(out, short)
	}
	return out
}

// Shortened returns the hosts that have a name as a short name, the likeliest first.
func Shortened(domain, name string) []Name {
	var out []Name
	for rest, more := domain, domain != ""; more; _, rest, more = strings.Cut(rest, ".") {
		if h := name + "." + rest; slices.Contains(ShortNames(domain, h), name) {
			out = append(out, Name(h))
		}
	}
	return out
}

// ShortNames returns the short names of a host in the DNS domain of a proxy. A pattern has
// none. (Istio: GenerateAltVirtualHosts.)
func ShortNames(domain, h string) []string {
	if domain == "" || Name(h).IsWildcard() {
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

// kubernetesNames returns reviews.shop and reviews.shop.svc for
// reviews.shop.svc.cluster.local, and in namespace shop also reviews.
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

// cutShared cuts from name the labels at its end that other ends with, too.
func cutShared(name, other []string) (unique, shared []string) {
	n := 0
	for n < min(len(name), len(other)) && name[len(name)-1-n] == other[len(other)-1-n] {
		n++
	}
	return name[:len(name)-n], name[len(name)-n:]
}

// Rivals returns the hosts that have the same short name as a host, and share more of the
// domain.
func Rivals(domain, h, name string) []string {
	if strings.Contains(domain, kubernetesPart) {
		return nil // no two hosts share such a name
	}
	var out []string
	for rest, more := domain, true; more; _, rest, more = strings.Cut(rest, ".") {
		other := name + "." + rest
		if other == h {
			break
		}
		if slices.Contains(ShortNames(domain, other), name) {
			out = append(out, other)
		}
	}
	return out
}
