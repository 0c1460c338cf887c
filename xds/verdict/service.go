package verdict

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
)

// MaxLooked limits how many objects are looked at for one field that covers many.
const MaxLooked = 100

// IsDynamic reports whether proxies look up the host that clients of a service name.
func IsDynamic(s *mesh.ServiceRow) bool { return s.Service().Resolution == discovery.DynamicDNS }

// SpeaksGRPC reports whether a service has a port for gRPC.
func SpeaksGRPC(s *mesh.ServiceRow) bool {
	return slices.ContainsFunc(s.Ports(), func(p discovery.Port) bool { return p.Protocol == discovery.GRPC })
}

// PortAndSubset judges the port and the subset of a destination whose service is s. effect is
// what happens if one of them is missing.
func (j *Judge) PortAndSubset(s *mesh.ServiceRow, d *networking.Destination, namespace, field, effect string) {
	if number := int(d.GetPort().GetNumber()); number != 0 {
		if _, has := s.Port(number); !has {
			j.Add(Verdict{
				Code: PortUnknown, Field: field + ".port.number",
				Message: fmt.Sprintf("%d is no port of %s: %s", number, s.Hostname, effect),
				Remedy:  "use one of its ports: " + portsOf(s),
			})
		}
	}
	if d.GetSubset() == "" {
		return
	}
	rule := j.View(namespace).Rule(s)
	if rule.Subset(d.GetSubset()) != nil {
		return
	}
	if j.selectingRuleHasSubset(s.Hostname, d.GetSubset(), namespace) {
		return
	}
	v := Verdict{
		Code: SubsetUnknown, Field: field + ".subset",
		Message: fmt.Sprintf("%q is no subset of %s: %s", d.GetSubset(), s.Hostname, effect),
		Remedy:  "add a DestinationRule for the host with the subset",
	}
	if rule != nil {
		v.Other = rule.Configs[0].Key()
		v.Remedy = fmt.Sprintf("add the subset to %s", v.Other)
		if some := subsetsOf(rule); some != "" {
			v.Remedy += ", or use one that it has: " + some
		}
	}
	j.Add(v)
}

// selectingRuleHasSubset reports whether a rule with a workloadSelector in a namespace has a
// subset.
func (j *Judge) selectingRuleHasSubset(h host.Name, subset, namespace string) bool {
	return slices.ContainsFunc(j.Mesh().RulesOf(h), func(r *destination.Rule) bool {
		return r.Namespace == namespace && r.Selector != nil && r.Subset(subset) != nil
	})
}

// Named returns a host as it was written, and what it stands for, as text for users.
func Named(written string, h host.Name) string {
	if strings.EqualFold(written, string(h)) {
		return fmt.Sprintf("%q", written)
	}
	return fmt.Sprintf("%q, which stands for %s,", written, h)
}

func subsetsOf(r *destination.Rule) string {
	var out []string
	for _, s := range r.Subsets {
		out = append(out, s.GetName())
	}
	return strings.Join(out, ", ")
}

func portsOf(s *mesh.ServiceRow) string {
	var out []string
	for _, p := range s.Ports() {
		out = append(out, strconv.Itoa(p.Number))
	}
	return strings.Join(out, ", ")
}
