package verdict

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/storage/secret"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/mesh/routing"
	"github.com/portolan-mesh/portolan/xds/names"
)

// secret judges whether the server can open a secret, and whether its certificates are
// valid. That nobody names it is no fault.
func (j *judge) secret(object *config.Config) {
	spec, ok := object.Spec.(*secret.Spec)
	if !ok || spec.Sealed == nil {
		return
	}
	j.read(secretRow, object.Key().Path())
	if unopened(spec, j.index.facts) {
		j.add(Verdict{
			Code: SecretClosed, Field: "sealed",
			Message: fmt.Sprintf("is sealed with key %s, which the leading server lacks: proxies of that server do not get the secret", spec.Sealed.Box.Key),
			Remedy:  "hand the key over with portolan secret key export and import, or store the secret again",
		})
	}
	for _, c := range spec.Sealed.Certificates {
		v := Verdict{Code: CertificateEnds, Field: "sealed.certificates[" + c.Entry + "]"}
		switch at := c.NotAfter.Format(time.RFC3339); stageOf(c, j.index.facts.Minute) {
		case ended:
			v.Message, v.Remedy = fmt.Sprintf("%q ended on %s: peers refuse it", c.Subject, at), "renew it, and store the new one with portolan secret tls"
		case ending:
			v.Message, v.Remedy = fmt.Sprintf("%q ends on %s", c.Subject, at), "renew it, and store the new one with portolan secret tls"
		case early:
			v.Message, v.Remedy = fmt.Sprintf("%q is not valid before %s: peers refuse it", c.Subject, c.NotBefore.Format(time.RFC3339)), "check the clock of this machine, or wait"
		default:
			continue
		}
		j.add(v)
	}
}

// soon is how long before its end a certificate is warned of.
const soon = 30 * 24 * time.Hour

// stage is where in its time a certificate is.
type stage byte

const (
	valid stage = iota
	early
	ending
	ended
)

// stageOf is that at a minute since 1970; a certificate is valid where the minute is not
// known.
func stageOf(c secret.Certificate, minute int64) stage {
	now := time.Unix(minute*60, 0)
	switch left := c.NotAfter.Sub(now); {
	case minute == 0:
		return valid
	case left <= 0:
		return ended
	case left < soon:
		return ending
	case c.NotBefore.Sub(now) >= time.Minute:
		return early
	}
	return valid
}

// unopened says whether the server lacks the key of a secret.
func unopened(spec *secret.Spec, f Facts) bool {
	ring := f.Mesh.Inputs().SealingKeys
	return spec.Sealed.Box != nil && ring != nil && !sealing.Opens(*ring, spec)
}

// changedSecrets iterates over the rows of secrets that can be opened as of one of two facts
// alone, or have a certificate that got to another stage.
func changedSecrets(from, to Facts, yield func(row) bool) bool {
	if from.Minute == to.Minute && from.Mesh.Inputs().SealingKeys == to.Mesh.Inputs().SealingKeys {
		return true
	}
	for object := range to.Mesh.Inputs().Configs.List(schema.Secret, "") {
		spec, ok := object.Spec.(*secret.Spec)
		if !ok || spec.Sealed == nil {
			continue
		}
		differs := unopened(spec, from) != unopened(spec, to) || slices.ContainsFunc(spec.Sealed.Certificates, func(c secret.Certificate) bool {
			return stageOf(c, from.Minute) != stageOf(c, to.Minute)
		})
		if differs && !yield(secretRow+row(object.Key().Path())) {
			return false
		}
	}
	return true
}

// uncovered judges whether the certificates of a server are for its hosts, in each namespace
// where proxies run the Gateway. A client that verifies names refuses any other.
func (j *judge) uncovered(object *config.Config, index int, s *routing.Server) {
	field := at("spec.servers", index)
	for _, namespace := range j.gatewayNamespaces(object) {
		leaves, of := j.serverCertificates(s.Spec.GetTls(), namespace)
		if len(leaves) == 0 {
			continue
		}
		for i, h := range s.Hosts {
			if h.Name == "*" || certified(leaves, h.Name) {
				continue
			}
			j.add(Verdict{
				Code: HostUncertified, Field: at(field+".hosts", i), Other: of.Key(),
				Message: fmt.Sprintf("%s is none of the names of the certificate in %s, which are %s: clients that verify it refuse the connection", h.Name, of.Key(), namesOf(leaves)),
				Remedy:  "store a certificate for the host, or name another secret",
			})
		}
	}
}

// gatewayNamespaces are those of the known proxies that a Gateway selects, in order; its own
// where there is none yet.
func (j *judge) gatewayNamespaces(object *config.Config) []string {
	selector := object.Spec.(*networking.Gateway).GetSelector()
	found := map[string]pmap.Map[*status.Proxy]{}
	for p := range j.known(routersRow, "").Values() {
		found[p.Namespace] = found[p.Namespace].Set(p.Node, p)
	}
	var out []string
	for _, namespace := range slices.Sorted(maps.Keys(found)) {
		if j.selects(selector, found[namespace]) {
			out = append(out, namespace)
		}
	}
	if len(out) == 0 {
		out = []string{object.Namespace}
	}
	return out
}

// serverCertificates are the certificates that a server has of secrets of a namespace, and
// the first of the secrets; none where one of them is not there.
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
		object := j.object(config.Key{Kind: schema.Secret, Namespace: namespace, Name: name})
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

// leafOf is the certificate that proxies present of a secret; false where it has none.
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

// certified says whether one of some certificates is for a host, or for some host that a
// pattern covers.
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

// namesOf are the names of some certificates, for users.
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
