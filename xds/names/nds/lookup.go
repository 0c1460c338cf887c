package nds

import (
	"iter"
	"strings"
)

// Complete returns the host that a short name stands for beside a proxy, as the routes of a sidecar
// do: NAME in the proxy's namespace, NAME.NAMESPACE, or NAME.NAMESPACE.svc. It returns none for
// other names.
func Complete(name, namespace, domain string) string {
	switch strings.Count(name, ".") {
	case 0:
		return name + "." + namespace + ".svc." + domain
	case 1:
		return name + ".svc." + domain
	case 2:
		if strings.HasSuffix(name, ".svc") {
			return name + "." + domain
		}
	}
	return ""
}

// Wildcards iterates over the wildcards above a name, the longest first. A host and a short name go
// before them.
func Wildcards(name string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for {
			_, above, ok := strings.Cut(name, ".")
			if !ok || !yield("*."+above) {
				return
			}
			name = above
		}
	}
}

// KeyOf returns a name as tables have it: in lower case, without the dot at the end.
func KeyOf(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// HostName returns the name of the resource of a host.
func HostName(host string) string { return TableName + "/" + host }
