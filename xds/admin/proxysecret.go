package admin

import (
	"slices"

	tlsv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/transport_sockets/tls/v3"

	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// The kinds of a ProxySecret.
const (
	KindCertificate = "certificate"
	KindAuthorities = "authorities"
)

// ProxySecret is what may be shown of a secret that a proxy has acknowledged: certificates,
// which every peer of the proxy sees, but never a key.
type ProxySecret struct {
	// Kind is KindCertificate if there is a key with it, or KindAuthorities.
	Kind string `json:"kind"`
	// Certificates are the chain, the leaf first, or the authorities. Their Entry is empty.
	Certificates []secret.Certificate `json:"certificates,omitempty"`
	// NeededBy are the clusters and listeners of the proxy that name the secret, in order, such
	// as "cluster outbound|443||bank.example" and "listener 0.0.0.0_443".
	NeededBy []string `json:"neededBy,omitempty"`
	// File is the path on the proxy's machine, if the proxy reads them there. Then the server
	// does not know them.
	File string `json:"file,omitempty"`
}

// proxySecret describes a secret, nil for another resource.
func proxySecret(r *resource.Resource) *ProxySecret {
	if r == nil || r.Body.GetTypeUrl() != resource.SecretType {
		return nil
	}
	message := &tlsv3.Secret{}
	if r.Body.UnmarshalTo(message) != nil {
		return nil
	}
	return describeSecret(message)
}

func describeSecret(message *tlsv3.Secret) *ProxySecret {
	out, source := &ProxySecret{}, message.GetTlsCertificate().GetCertificateChain()
	switch {
	case message.GetTlsCertificate() != nil:
		out.Kind = KindCertificate
	case message.GetValidationContext() != nil:
		out.Kind, source = KindAuthorities, message.GetValidationContext().GetTrustedCa()
	default:
		return nil
	}
	out.File, out.Certificates = source.GetFilename(), secret.Certificates(map[string][]byte{"": source.GetInlineBytes()})
	return out
}

// needersOf are the types whose resources name secrets, with the words for one resource.
var needersOf = map[string]string{resource.ClusterType: "cluster ", resource.ListenerType: "listener "}

// namesSecrets says whether resources of a type, such as CDS, name secrets.
func namesSecrets(t string) bool { return t == "CDS" || t == "LDS" }

// needers are the clusters and listeners that name a secret, by its name.
type needers map[string][]string

// add notes what a resource needs.
func (n needers) add(typeURL, name string, needs func(yield func(resource.Need) bool)) {
	for need := range needs {
		by := needersOf[typeURL] + name
		if need.TypeURL == resource.SecretType && !slices.Contains(n[need.Name], by) {
			n[need.Name] = append(n[need.Name], by)
		}
	}
}

// neededBy returns the clusters and listeners that a proxy has acknowledged, by the secrets that
// they name.
func neededBy(types []xds.TypeHoldings) needers {
	out := needers{}
	for _, t := range types {
		if !namesSecrets(t.Name) {
			continue
		}
		for _, h := range t.Resources {
			if h.Acked != nil {
				out.add(t.TypeURL, h.Name, h.Acked.EachNeed)
			}
		}
	}
	for _, by := range out {
		slices.Sort(by)
	}
	return out
}
