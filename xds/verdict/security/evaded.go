package security

import (
	"fmt"
	"slices"
	"strings"

	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// hosts tells of hosts that a request evades by a port: a host is compared as the client writes it.
func (j *policyJudge) hosts() {
	for i, rule := range j.spec.GetRules() {
		for k, to := range rule.GetTo() {
			field, refused := "hosts", to.GetOperation().GetHosts()
			if j.spec.GetAction() == security.AuthorizationPolicy_ALLOW {
				field, refused = "notHosts", to.GetOperation().GetNotHosts()
			}
			for n, v := range refused {
				if v == "*" || strings.HasSuffix(v, "*") || strings.Contains(v, ":") || coversPort(refused, v) {
					continue
				}
				j.add(verdict.HostWithoutPort, verdict.At(fmt.Sprintf("spec.rules[%d].to[%d].operation.%s", i, k, field), n),
					"add "+portsOfHost(v)+" to the list", "%q does not match the host with a port, such as %s, and a client may write one", v, v+":8080")
				return
			}
		}
	}
}

// coversPort says whether one of some values matches a host with a port.
func coversPort(values []string, of string) bool {
	return slices.ContainsFunc(values, func(v string) bool {
		prefix, ok := strings.CutSuffix(v, "*")
		return ok && strings.HasPrefix(strings.ToLower(of)+":", strings.ToLower(prefix))
	})
}

// portsOfHost is the value that matches a host with any port. A value has one asterisk, so that for
// a suffix is a port that clients may write.
func portsOfHost(v string) string {
	if strings.HasPrefix(v, "*") {
		return v + ":8080 and other ports"
	}
	return v + ":*"
}

// addresses tells of addresses that a caller of a sidecar can write itself. A sidecar takes the last
// one of X-Forwarded-For, which a gateway writes and any other caller can. A rule that also names
// who calls trusts that caller.
func (j *policyJudge) addresses() {
	if !slices.ContainsFunc(j.selected, func(p chosen) bool { return p.Type == discovery.Sidecar }) {
		return
	}
	for i, rule := range j.spec.GetRules() {
		if field := remoteField(rule); field != "" {
			j.add(verdict.AddressesClaimed, fmt.Sprintf("spec.rules[%d].%s", i, field), "name the gateway by principals beside it, or select the gateway instead",
				"is compared with the last address of X-Forwarded-For, which every caller of a sidecar can write")
			return
		}
	}
}

// remoteField returns the first field of a rule that names an address which X-Forwarded-For gives,
// without an identity beside it; empty for none.
func remoteField(rule *security.Rule) string {
	proved := len(rule.GetFrom()) > 0
	for k, from := range rule.GetFrom() {
		s := from.GetSource()
		if len(s.GetPrincipals())+len(s.GetNamespaces())+len(s.GetServiceAccounts()) > 0 {
			continue
		}
		proved = false
		switch at := fmt.Sprintf("from[%d].source.", k); {
		case len(s.GetRemoteIpBlocks()) > 0:
			return at + "remoteIpBlocks"
		case len(s.GetNotRemoteIpBlocks()) > 0:
			return at + "notRemoteIpBlocks"
		}
	}
	for k, when := range rule.GetWhen() {
		if attribute, _, _ := schema.ParseCondition(when.GetKey()); attribute == schema.RemoteIP && !proved {
			return fmt.Sprintf("when[%d].key", k)
		}
	}
	return ""
}
