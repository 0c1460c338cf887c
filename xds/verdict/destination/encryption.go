package destination

import (
	"fmt"
	"iter"
	"slices"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/generate/transport"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// encryption judges the TLS settings of a rule: which secrets and certificates the proxies
// lack, and whether they verify the name of the server.
func (j *judge) encryption(object *config.Config, spec *networking.DestinationRule, services []*mesh.ServiceRow) {
	for set, tls := range tlsOf(spec) {
		field := set.field
		switch tls.GetMode() {
		case networking.ClientTLSSettings_ISTIO_MUTUAL:
			j.Add(verdict.Verdict{
				Code: verdict.CertificateNeeded, Field: field + ".mode",
				Message: "needs proxies that have a certificate of their own: from others nothing reaches the service",
				Remedy:  "give the proxies theirs, with portolan bootstrap --cert FILE --key FILE --ca FILE",
			})
		case networking.ClientTLSSettings_SIMPLE, networking.ClientTLSSettings_MUTUAL:
			j.unverified(set, tls, services)
			j.lacking(object, spec, field, tls)
		}
	}
}

// placed is the path of TLS settings in a rule, and the port that they are for, 0 for all.
type placed struct {
	field string
	port  uint32
}

// tlsOf iterates over the TLS settings of a rule.
func tlsOf(spec *networking.DestinationRule) iter.Seq2[placed, *networking.ClientTLSSettings] {
	return func(yield func(placed, *networking.ClientTLSSettings) bool) {
		for path, policy := range verdict.PoliciesOf(spec) {
			if tls := policy.GetTls(); tls != nil && !yield(placed{field: path + ".tls"}, tls) {
				return
			}
			for i, port := range policy.GetPortLevelSettings() {
				if tls := port.GetTls(); tls != nil && !yield(placed{verdict.At(path+".portLevelSettings", i) + ".tls", port.GetPort().GetNumber()}, tls) {
					return
				}
			}
		}
	}
}

// unverified warns if proxies accept a certificate of any name. On HTTP ports the request names
// the host, unless the settings have an SNI of their own.
func (j *judge) unverified(set placed, tls *networking.ClientTLSSettings, services []*mesh.ServiceRow) {
	if tls.GetInsecureSkipVerify().GetValue() || len(tls.GetSubjectAltNames()) > 0 {
		return
	}
	for _, s := range services {
		if verdict.IsDynamic(s) || len(s.Service().ServiceAccounts) > 0 {
			continue
		}
		message := ""
		switch {
		case tls.GetSni() != "":
			message = fmt.Sprintf("asks for %s, and takes the certificate of any name that leads to the authority", tls.GetSni())
		case slices.ContainsFunc(s.Ports(), func(p discovery.Port) bool {
			return !p.Protocol.IsHTTP() && p.Protocol.IsServed() && (set.port == 0 || int(set.port) == p.Number)
		}):
			message = fmt.Sprintf("asks for no name on a port of %s without HTTP, and takes the certificate of any name that leads to the authority", s.Hostname)
		default:
			continue
		}
		j.Add(verdict.Verdict{
			Code: verdict.ServerUnverified, Field: set.field, Message: message,
			Remedy: "set subjectAltNames to the names in the certificate of the server, and sni to that which it is to be asked for",
		})
		return
	}
}

// lacking warns if known proxies that use the rule lack its credential. It reports once for
// each namespace, since proxies of a namespace have the same secrets.
func (j *judge) lacking(object *config.Config, spec *networking.DestinationRule, field string, tls *networking.ClientTLSSettings) {
	if tls.GetCredentialName() == "" {
		return
	}
	rules := j.Mesh().RulesNamed(destination.HostOf(object))
	i := slices.IndexFunc(rules, func(r *destination.Rule) bool { return slices.Contains(r.Configs, object) })
	if i < 0 {
		return
	}
	rule := rules[i]
	uses := func(p *status.Proxy) bool {
		return rule.ExportTo.VisibleTo(p.Namespace) &&
			(rule.Selector == nil || j.Selects(rule.Selector.GetMatchLabels(), pmap.Map[*status.Proxy]{}.Set(p.Node, p)))
	}
	told := map[string]bool{}
	judge := func(p *status.Proxy, kind discovery.ProxyType) {
		if told[p.Namespace] || !uses(p) {
			return
		}
		told[p.Namespace] = true
		view := j.ViewOf(mesh.Class{Namespace: p.Namespace, Shape: mesh.Shape{Type: kind}})
		for _, lack := range transport.ClientLacks(view, tls, transport.ClientOptions{Selected: rule.Selector != nil}) {
			v := verdict.Verdict{
				Code: verdict.CredentialMissing, Field: field + "." + lack.Field,
				Message: fmt.Sprintf("%s, %s: from there nothing reaches the service", lack, p.Namespace),
				Remedy:  "name a secret of that namespace",
			}
			why, never := "", false
			if lack.Secret != "" {
				why, never = j.UnreadSecrets(p.Namespace)
			}
			if never {
				v.Message = verdict.UnknownSecret(lack.Secret, p.Namespace, "Proxies that have it keep it, from others nothing reaches the service")
			}
			switch {
			case lack.Secret == "":
			case why != "":
				v.Remedy = fmt.Sprintf("have the secrets of that namespace read (%s), or mend the name", why)
			case tls.GetMode() == networking.ClientTLSSettings_MUTUAL:
				v.Remedy = fmt.Sprintf("store it, as with portolan secret tls %s -n %s --cert FILE --key FILE --ca FILE, or mend the name%s", lack.Secret, p.Namespace, j.OrReadIt(object, p.Namespace))
			default:
				v.Remedy = fmt.Sprintf("store it, as with portolan secret generic %s -n %s --from-file ca.crt=FILE, or mend the name%s", lack.Secret, p.Namespace, j.OrReadIt(object, p.Namespace))
			}
			j.Add(v)
		}
	}
	for p := range j.Known(verdict.RoutersRow, "").Values() {
		judge(p, discovery.Router)
	}
	if rule.Selector != nil {
		for p := range j.Known(verdict.SidecarsRow, object.Namespace).Values() {
			judge(p, discovery.Sidecar)
		}
		return
	}
	for p := range j.Known(verdict.SidecarsRow, object.Namespace).Values() {
		if discovery.ProxyType(p.Type) == discovery.Sidecar && uses(p) {
			j.Add(verdict.Verdict{
				Code: verdict.CredentialSidecars, Field: field + ".credentialName",
				Message: fmt.Sprintf("is not for sidecars without a workloadSelector, and there are some in namespace %s: from them nothing reaches the service, except through a gateway", p.Namespace),
				Remedy:  "select the sidecars that may have the secret in workloadSelector, or limit the rule to the namespaces of gateways in exportTo",
			})
			return
		}
	}
}
