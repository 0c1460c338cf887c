// Package host is the arithmetic of host names as Istio defines it: wildcards,
// cover, overlap, specificity and short names.
package host

import (
	"iter"
	"net/netip"
	"strings"
)

// Name is a DNS name or, where its first character is "*", a pattern that
// stands for every name with the rest as its suffix. "*" alone stands for all;
// "*.foo.com" does not cover "foo.com".
type Name string

// IsWildcard says whether n is a pattern.
func (n Name) IsWildcard() bool { return strings.HasPrefix(string(n), "*") }

// Matches says whether some name is covered by both n and o (symmetric).
func (n Name) Matches(o Name) bool {
	switch nw, ow := n.IsWildcard(), o.IsWildcard(); {
	case nw && ow:
		if len(n) < len(o) {
			n, o = o, n
		}
		return strings.HasSuffix(string(n[1:]), string(o[1:]))
	case nw:
		return strings.HasSuffix(string(o), string(n[1:])) && (n == "*" || len(o) > len(n)-1)
	case ow:
		return o.Matches(n)
	default:
		return n == o
	}
}

// SubsetOf says whether every name covered by n is covered by o.
func (n Name) SubsetOf(o Name) bool {
	if !o.IsWildcard() {
		return n == o
	}
	if n.IsWildcard() {
		return len(n) >= len(o) && strings.HasSuffix(string(n[1:]), string(o[1:]))
	}
	return o.Matches(n)
}

// Covers iterates over the names whose entry could apply to n, most specific
// first: n itself, then the patterns that cover it at a label boundary, then
// "*". For "a.b.c" these are a.b.c, *.b.c, *.c, *; for the pattern "*.b.c" they
// are *.b.c, *.c, *. Names are tried in this order to find "the most specific
// match"; only patterns that begin with "*." or are "*" are ever tried, which
// are the ones that validation admits.
func (n Name) Covers() iter.Seq[Name] {
	return func(yield func(Name) bool) {
		if !yield(n) || n == "*" {
			return
		}
		rest := strings.TrimPrefix(string(n), "*.")
		if rest == string(n) { // exact: its first label makes way for the *
			if _, rest2, ok := strings.Cut(rest, "."); ok {
				rest = rest2
				if !yield(Name("*." + rest)) {
					return
				}
			} else {
				yield("*")
				return
			}
		}
		for {
			_, next, ok := strings.Cut(rest, ".")
			if !ok {
				break
			}
			rest = next
			if !yield(Name("*." + rest)) {
				return
			}
		}
		yield("*")
	}
}

// Resolve completes a short name: one without a dot becomes
// name.namespace.svc.domain (name.namespace where the domain is empty).
// Patterns and IP addresses are left as they are. (Istio: ResolveShortnameToFQDN.)
func Resolve(name, namespace, domain string) Name {
	if strings.Contains(name, ".") || strings.HasPrefix(name, "*") || name == "" {
		return Name(name)
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return Name(name)
	}
	out := name
	if namespace != "" {
		if domain == "" {
			return Name(out + "." + namespace)
		}
		out += "." + namespace + ".svc"
	}
	if domain != "" {
		out += "." + domain
	}
	return Name(out)
}
