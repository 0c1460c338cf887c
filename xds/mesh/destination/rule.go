package destination

import (
	"cmp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"
	apitype "istio.io/api/type/v1beta1"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/labels"
)

// Rule is the merge of the DestinationRules of one host, namespace, exportTo and
// selector. It has the subsets of all, of each name the first, and the first traffic
// policy. It is never modified.
type Rule struct {
	Host      host.Name
	Namespace string
	ExportTo  discovery.Visibility
	// Selector selects the client proxies, in its namespace, to which the rule applies.
	// It is nil for all proxies.
	Selector *apitype.WorkloadSelector
	Policy   *networking.TrafficPolicy
	Subsets  []*networking.Subset
	// Configs are the merged objects, the oldest first.
	Configs []*config.Config
}

// Subset returns the subset with a name, nil if there is none.
func (r *Rule) Subset(name string) *networking.Subset {
	if r == nil {
		return nil
	}
	for _, s := range r.Subsets {
		if s.GetName() == name {
			return s
		}
	}
	return nil
}

// HostOf is the host or pattern that a DestinationRule is for, in lower case.
func HostOf(c *config.Config) host.Name {
	return host.Name(strings.ToLower(string(host.Resolve(c.Spec.(*networking.DestinationRule).GetHost(), c.Namespace, c.Domain))))
}

// Compare orders the rules of a host: those with a selector first, then the oldest.
// (Istio: sortConfigBySelectorAndCreationTime.)
func Compare(a, b *config.Config) int {
	if as, bs := selectorOf(a) != nil, selectorOf(b) != nil; as != bs {
		if as {
			return -1
		}
		return 1
	}
	return config.Compare(a, b)
}

func selectorOf(c *config.Config) *apitype.WorkloadSelector {
	return c.Spec.(*networking.DestinationRule).GetWorkloadSelector()
}

// Merge merges the rules of a host, given in the order of Compare. Rules that differ in
// namespace, selector or exportTo stay apart, but a younger rule also counts in older
// ones that are exported to fewer namespaces. A rule with a selector is private to its
// namespace. Of the mesh's default exportTo only "." is honoured; anything else means
// public. (Istio: mergeDestinationRule, setDestinationRules.)
func Merge(h host.Name, sources []*config.Config, meshDefault []string) []*Rule {
	defaultExport := []string{"*"}
	if slices.Contains(meshDefault, ".") {
		defaultExport = []string{"."}
	}
	var out []*Rule
	for _, c := range sources {
		spec := c.Spec.(*networking.DestinationRule)
		exportTo := discovery.ParseVisibility(spec.GetExportTo(), c.Namespace, defaultExport)
		selector := spec.GetWorkloadSelector()
		if selector != nil {
			exportTo = discovery.Visibility{c.Namespace}
		}
		same := false
		for _, r := range out {
			if r.Namespace == c.Namespace && proto.Equal(r.Selector, selector) && exportTo.Includes(r.ExportTo) {
				r.merge(c, spec)
				same = same || len(r.ExportTo) == len(exportTo)
			}
		}
		if !same {
			r := &Rule{Host: h, Namespace: c.Namespace, ExportTo: exportTo, Selector: selector}
			r.merge(c, spec)
			out = append(out, r)
		}
	}
	return out
}

// merge adds a younger object while r is being built.
func (r *Rule) merge(c *config.Config, spec *networking.DestinationRule) {
	r.Configs = append(r.Configs, c)
	if r.Policy == nil {
		r.Policy = spec.GetTrafficPolicy()
	}
	for _, s := range spec.GetSubsets() {
		if r.Subset(s.GetName()) == nil {
			r.Subsets = append(r.Subsets, s)
		}
	}
}

// Client is the proxy for which a service's rule is chosen.
type Client struct {
	Namespace, ServiceNamespace, RootNamespace string
	// Selects says whether a selector selects the client; nil means that none does.
	Selects func(labels.Instance) bool
}

// Choice has the rules that a client may use for a service: the first visible rule of
// the client's own namespace, of the service's, and of the root namespace.
type Choice struct {
	Own, Service, Root *Rule
}

// Best is the rule that the client uses, nil for none.
func (c Choice) Best() *Rule { return cmp.Or(c.Own, c.Service, c.Root) }

// Or takes from the choice of a wider pattern what c lacks.
func (c Choice) Or(wider Choice) Choice {
	return Choice{cmp.Or(c.Own, wider.Own), cmp.Or(c.Service, wider.Service), cmp.Or(c.Root, wider.Root)}
}

// Choose chooses among the rules of one host. It ignores rules whose selector does not
// select the client.
func (c Client) Choose(rules []*Rule) Choice {
	var out Choice
	for _, r := range rules {
		if !r.ExportTo.VisibleTo(c.Namespace) || r.Selector != nil && !c.selectedBy(r.Selector) {
			continue
		}
		// A rule of the root namespace is meant for its own clients only if it is
		// private. Others are for all clients and come last.
		if c.Namespace != c.RootNamespace || slices.Equal(r.ExportTo, discovery.Visibility{c.RootNamespace}) {
			take(&out.Own, r, c.Namespace)
		}
		take(&out.Service, r, c.ServiceNamespace)
		take(&out.Root, r, c.RootNamespace)
	}
	return out
}

func (c Client) selectedBy(s *apitype.WorkloadSelector) bool {
	return c.Selects != nil && c.Selects(s.GetMatchLabels())
}

// take keeps the first rule of a namespace.
func take(slot **Rule, r *Rule, namespace string) {
	if *slot == nil && r.Namespace == namespace {
		*slot = r
	}
}
