package security

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// principals tells of principals that no caller is: each is TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT.
func (j *policyJudge) principals() {
	judge := func(field string, values []string) {
		j.neverMatch(field, values, withScheme, "begins with spiffe://, which principals are written without")
		j.neverMatch(field, values, formless, "is not of the form TRUST-DOMAIN/ns/NAMESPACE/sa/ACCOUNT, as identities of the mesh are")
	}
	for i, rule := range j.spec.GetRules() {
		for k, from := range rule.GetFrom() {
			at := fmt.Sprintf("spec.rules[%d].from[%d].source.", i, k)
			judge(at+"principals", from.GetSource().GetPrincipals())
			judge(at+"notPrincipals", from.GetSource().GetNotPrincipals())
		}
		for k, when := range rule.GetWhen() {
			if attribute, _, _ := schema.ParseCondition(when.GetKey()); attribute == schema.SourcePrincipal {
				at := fmt.Sprintf("spec.rules[%d].when[%d].", i, k)
				judge(at+"values", when.GetValues())
				judge(at+"notValues", when.GetNotValues())
			}
		}
	}
}

func withScheme(v string) bool { return strings.HasPrefix(v, "spiffe://") }

// formless reports whether an exact principal has another form than those of workloads.
func formless(v string) bool {
	if strings.Contains(v, "*") || withScheme(v) {
		return false
	}
	parts := strings.Split(v, "/")
	return len(parts) < 5 || parts[1] != "ns" || parts[len(parts)-2] != "sa" || slices.Contains(parts, "")
}

// servicePorts reports each port that a service has and its workloads do not.
// What gateways listen on is not known here.
func (j *policyJudge) servicePorts() {
	own, of := map[int]bool{}, map[int]string{} // the ports of workloads; by the port of a service, what it leads to
	for _, p := range j.selected {
		if p.Type == discovery.Router {
			return
		}
		for at, port := range j.servedBy(p) {
			own[at] = true
			if at != port.Number && of[port.Number] == "" {
				of[port.Number] = strconv.Itoa(at)
			}
		}
	}
	judge := func(field string, values []string) {
		for i, v := range values {
			if n, err := strconv.Atoi(v); err == nil && !own[n] && of[n] != "" {
				j.add(verdict.PolicyServicePort, verdict.At(field, i), "write "+of[n],
					"%s is the port of a service, and its workloads take connections at %s: ports of policies are those of workloads", v, of[n])
			}
		}
	}
	for i, rule := range j.spec.GetRules() {
		for k, to := range rule.GetTo() {
			at := fmt.Sprintf("spec.rules[%d].to[%d].operation.", i, k)
			judge(at+"ports", to.GetOperation().GetPorts())
			judge(at+"notPorts", to.GetOperation().GetNotPorts())
		}
		for k, when := range rule.GetWhen() {
			if when.GetKey() == string(schema.DestinationPort) {
				at := fmt.Sprintf("spec.rules[%d].when[%d].", i, k)
				judge(at+"values", when.GetValues())
				judge(at+"notValues", when.GetNotValues())
			}
		}
	}
}
