package kube

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
)

// ofCluster is a Service, and the place of its cluster in their order.
type ofCluster struct {
	at int
	*service
}

// addIgnored adds a flaw for each Service whose external name, or whose lack of one, has no effect: another
// cluster has an older Service of the name, whose type counts (rows.NewService).
func addIgnored(registries []*Registry, statuses []Status) {
	knowns := make([]*known, len(registries))
	for i, r := range registries {
		knowns[i] = &r.settled.Load().known
	}
	seen := map[string]bool{}
	for _, k := range knowns {
		for path, item := range k.objects.Prefix(servicePrefix) {
			if s, _ := item.(*service); s == nil || s.ExternalName == "" || seen[path] {
				continue
			}
			seen[path] = true
			var all []ofCluster
			for at, other := range knowns {
				if s, _ := other.objects.Value(path).(*service); s != nil {
					all = append(all, ofCluster{at, s})
				}
			}
			first := slices.MinFunc(all, func(a, b ofCluster) int {
				one, two := registries[a.at], registries[b.at]
				return cmp.Or(discovery.CompareServices(one.convert.service(a.service, nil), two.convert.service(b.service, nil)), strings.Compare(one.Cluster(), two.Cluster()))
			})
			for _, s := range all {
				if s.ExternalName != first.ExternalName {
					of := &statuses[s.at]
					of.Flaws = append(of.Flaws, Flaw{Object: "Service " + s.key(), Reason: fmt.Sprintf(
						"it has %s, and that of cluster %s counts, which has %s: make them alike, or give one another name",
						s.naming(), registries[first.at].Cluster(), first.naming())})
				}
			}
		}
	}
}

// naming returns the external name in words.
func (s *service) naming() string {
	if s.ExternalName == "" {
		return "no externalName"
	}
	return "externalName " + s.ExternalName
}
