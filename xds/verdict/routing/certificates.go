package routing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// warnUncovered warns of hosts of the server at a field that its certificates do not name, in each namespace
// where proxies run the Gateway. Clients that verify names refuse such a certificate.
func (j *judge) warnUncovered(object *config.Config, field string, s *routing.Server) {
	for _, namespace := range j.gatewayNamespaces(object) {
		leaves, of := j.serverCertificates(s.Spec.GetTls(), namespace)
		if len(leaves) == 0 {
			continue
		}
		for _, h := range s.Hosts {
			if h.Name == "*" || certified(leaves, h.Name) {
				continue
			}
			j.Add(verdict.Verdict{
				Code: verdict.HostUncertified, Field: verdict.At(field+".hosts", h.Index), Other: of.Key(),
				Message: fmt.Sprintf("%s is none of the names of the certificate in %s, which are %s: clients that verify it refuse the connection", h.Name, of.Key(), namesOf(leaves)),
				Remedy:  "store a certificate for the host, or name another secret",
			})
		}
	}
}

// gatewayNamespaces returns the namespaces of the known proxies that a Gateway selects, in
// order. If there are none yet, it returns the Gateway's own.
func (j *judge) gatewayNamespaces(object *config.Config) []string {
	selector := object.Spec.(*networking.Gateway).GetSelector()
	found := map[string]pmap.Map[*status.Proxy]{}
	for p := range j.Known(verdict.RoutersRow, "").Values() {
		found[p.Namespace] = found[p.Namespace].Set(p.Node, p)
	}
	var out []string
	for _, namespace := range slices.Sorted(maps.Keys(found)) {
		if j.Selects(selector, found[namespace]) {
			out = append(out, namespace)
		}
	}
	if len(out) == 0 {
		out = []string{object.Namespace}
	}
	return out
}

// serverCertificates returns the certificates that a server presents from secrets of a
// namespace, and the first of these secrets. It returns none if one of them is missing.
func (j *judge) serverCertificates(tls *networking.ServerTLSSettings, namespace string) (leaves []secret.Certificate, first *config.Config) {
	switch tls.GetMode() {
	case networking.ServerTLSSettings_SIMPLE, networking.ServerTLSSettings_MUTUAL, networking.ServerTLSSettings_OPTIONAL_MUTUAL:
	default:
		return nil, nil
	}
	credentials := tls.GetCredentialNames()
	if tls.GetCredentialName() != "" {
		credentials = []string{tls.GetCredentialName()}
	}
	for _, name := range credentials {
		name = strings.TrimPrefix(strings.TrimPrefix(name, names.CredentialPrefix), namespace+"/")
		object := j.Object(config.Key{Kind: schema.Secret, Namespace: namespace, Name: name})
		if object == nil {
			object = j.View(namespace).ClusterSecret(name)
		}
		if object == nil {
			return nil, nil
		}
		leaf, ok := leafOf(object)
		if !ok {
			return nil, nil
		}
		if leaves = append(leaves, leaf); first == nil {
			first = object
		}
	}
	return leaves, first
}

// leafOf returns the certificate that proxies present from a secret; false if it has none.
func leafOf(object *config.Config) (secret.Certificate, bool) {
	spec, ok := object.Spec.(*secret.Spec)
	if !ok {
		return secret.Certificate{}, false
	}
	entry, _, ok := spec.Pair()
	if !ok {
		return secret.Certificate{}, false
	}
	for _, c := range spec.Sealed.Certificates {
		if c.Entry == entry {
			return c, true
		}
	}
	return secret.Certificate{}, false
}

// certified reports whether one of the certificates names a host, or one that the pattern h
// covers.
func certified(leaves []secret.Certificate, h host.Name) bool {
	for _, c := range leaves {
		for _, text := range c.Names {
			name := host.Name(strings.ToLower(text))
			if name == h || name.SubsetOf(h) {
				return true
			}
			// The wildcard of a certificate stands for one label.
			if rest, ok := strings.CutPrefix(string(name), "*."); ok {
				if label, parent, dotted := strings.Cut(string(h), "."); dotted && label != "*" && parent == rest {
					return true
				}
			}
		}
	}
	return false
}

// namesOf returns the names of some certificates as text for users.
func namesOf(leaves []secret.Certificate) string {
	const most = 5
	var all []string
	for _, c := range leaves {
		all = append(all, c.Names...)
	}
	switch {
	case len(all) == 0:
		return "none"
	case len(all) > most:
		return fmt.Sprintf("%s and %d more", strings.Join(all[:most], ", "), len(all)-most)
	}
	return strings.Join(all, ", ")
}
