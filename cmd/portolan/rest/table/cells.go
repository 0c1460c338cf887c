package table

import (
	"fmt"
	"maps"
	"strings"

	metav1alpha1 "istio.io/api/meta/v1alpha1"
	networking "istio.io/api/networking/v1alpha3"
	security "istio.io/api/security/v1beta1"

	"github.com/portolan-mesh/portolan/cmd/portolan/text"
	"github.com/portolan-mesh/portolan/discovery/registration"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/health"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/admin"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
)

// selector formats a selector of workloads; an empty one is "all".
func selector(labels map[string]string, wide bool) string {
	if len(labels) == 0 {
		return "all"
	}
	return text.Pairs(labels, wide)
}

// routeCounts formats the counts that are not 0, as in "http=2,tcp=1".
func routeCounts(s *networking.VirtualService) string {
	counts := map[string]int{"http": len(s.GetHttp()), "tls": len(s.GetTls()), "tcp": len(s.GetTcp())}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	return text.Pairs(counts, true)
}

// hostsGranted returns all hosts of a HostGrant.
func hostsGranted(s *claim.HostGrant) (hosts []string) {
	for _, to := range s.To {
		hosts = append(hosts, to.Hosts...)
	}
	return hosts
}

func conditionsOf(object *config.Config) []*metav1alpha1.IstioCondition {
	with, _ := object.Status.(interface {
		GetConditions() []*metav1alpha1.IstioCondition
	})
	if with == nil {
		return nil
	}
	return with.GetConditions()
}

// line returns a text on one line.
func line(s string) string { return strings.Join(strings.Fields(s), " ") }

// programmed returns the reason of the condition Programmed, which implies its status, and
// how many of the proxies concerned have the object. It is empty if there is no such
// condition.
func programmed(object *config.Config) string {
	for _, c := range conditionsOf(object) {
		if c.GetType() != status.Programmed {
			continue
		}
		var have, concerned int
		if n, _ := fmt.Sscanf(line(c.GetMessage()), "%d of %d proxies", &have, &concerned); n == 2 {
			return fmt.Sprintf("%s %d/%d", line(c.GetReason()), have, concerned)
		}
		return line(c.GetReason())
	}
	return ""
}

// issues returns the reasons of the conditions that report a problem with an object: the
// code of the worst finding of each sort, and why it is refused.
func issues(object *config.Config) string {
	var out []string
	for _, c := range conditionsOf(object) {
		switch c.GetType() {
		case status.ResolvedRefs:
			if c.GetStatus() == status.False {
				out = append(out, line(c.GetReason()))
			}
		case status.Rejected, status.Conflicted, status.PartlyServed:
			if c.GetStatus() == status.True {
				out = append(out, line(c.GetReason()))
			}
		}
	}
	return text.List(out, true)
}

// addresses returns the addresses of a ServiceEntry: its own, else those assigned to its
// hosts, with the host if there are several.
func addresses(object *config.Config, _ bool) string {
	spec, _ := object.Spec.(*networking.ServiceEntry)
	if own := spec.GetAddresses(); len(own) > 0 {
		return text.List(own, true)
	}
	assigned, _ := object.Status.(*networking.ServiceEntryStatus)
	return text.ListOf(assigned.GetAddresses(), func(a *networking.ServiceEntryAddress) string {
		if len(spec.GetHosts()) > 1 {
			return fmt.Sprintf("%s (%s)", a.GetValue(), a.GetHost())
		}
		return a.GetValue()
	}, true)
}

// registrant returns the name of the proxy that registered a WorkloadEntry; empty if none did.
func registrant(object *config.Config, _ bool) string {
	return NodeName(object.Annotations[registration.NodeAnnotation])
}

// NodeName returns the name in a node id, or a text of another form as it is.
func NodeName(id string) string {
	if parts := strings.Split(id, "~"); len(parts) == 4 {
		id = parts[2]
	}
	return text.Plain(id)
}

// Health returns the health of a WorkloadEntry: HEALTHY or UNHEALTHY as reported, UNKNOWN if
// it is checked but was not reported yet, else empty.
func Health(object *config.Config) string {
	c := health.In(conditionsOf(object))
	switch {
	case c.GetStatus() == status.True:
		return admin.Healthy
	case c != nil:
		return admin.Unhealthy
	case health.Checked(object.Annotations):
		return "UNKNOWN"
	}
	return ""
}

// policyAction is the action of an AuthorizationPolicy, and whether it is only watched.
func policyAction(object *config.Config, _ bool) string {
	spec, _ := object.Spec.(*security.AuthorizationPolicy)
	action := spec.GetAction().String()
	if policy.DryRun(object) {
		action += " (dry run)"
	}
	return action
}
