package sidecar

import (
	"strings"

	"github.com/portolan-mesh/portolan/storage/host"
)

// egressHosts is the parsed hosts list of an egress listener. An entry is
// "namespace/name", where "*" is any namespace and "." the own one. A leading "~"
// excludes.
type egressHosts struct {
	include, exclude []importedHost
}

type importedHost struct {
	namespace string
	host      host.Name
}

func parseEgressHosts(hosts []string) egressHosts {
	var out egressHosts
	for _, h := range hosts {
		ns, name, _ := strings.Cut(strings.ToLower(h), "/")
		if ns == "~" {
			if name != "*" {
				out.exclude = append(out.exclude, importedHost{"*", host.Name(name)})
			}
			continue
		}
		if rest, excluded := strings.CutPrefix(ns, "~"); excluded {
			out.exclude = append(out.exclude, importedHost{rest, host.Name(name)})
			continue
		}
		out.include = append(out.include, importedHost{ns, host.Name(name)})
	}
	return out
}

// covers says whether the entry covers a name of a namespace, for a scope in namespace
// own. matches compares the entry's host with the name.
func (i importedHost) covers(own, namespace string, matches func(host.Name) bool) bool {
	switch i.namespace {
	case "*":
	case ".":
		if namespace != own {
			return false
		}
	default:
		if i.namespace != namespace {
			return false
		}
	}
	return matches(i.host)
}

// Rank says how an egress listener imports a host of a namespace. If several namespaces
// have the host, the highest rank wins.
type Rank int

// The ranks, the lowest first.
const (
	NotImported Rank = iota
	OfAny            // by an entry for any namespace
	OfNamespace      // by an entry that names the namespace
)

// imports ranks a name of a namespace; matches compares an entry's host with it. An
// excluding entry must cover the name.
func (e egressHosts) imports(own, namespace string, name host.Name, matches func(host.Name) bool) Rank {
	for _, x := range e.exclude {
		if x.covers(own, namespace, name.SubsetOf) {
			return NotImported
		}
	}
	rank := NotImported
	for _, i := range e.include {
		switch {
		case !i.covers(own, namespace, matches):
		case i.namespace != "*":
			return OfNamespace
		default:
			rank = OfAny
		}
	}
	return rank
}
