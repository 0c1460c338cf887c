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

// Rule is the DestinationRules of one host, one namespace, one exportTo and one selector,
// merged: the subsets of all, the first of a name kept, and the first traffic
// policy. It is never modified.
type Rule struct {
	Host      host.Name
	Namespace string
	ExportTo  discovery.Visibility
	// Selector is the selector of the client proxies in its namespace that it is for, nil
	// for all proxies.
	Selector *apitype.WorkloadSelector
	Policy   *networking.TrafficPolicy
	Subsets  []*networking.Subset
	// Configs are the objects that it was merged from, the oldest first.
	Configs []*config.Config
}

// Subset finds a subset by name, nil where there is none.
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

// Merge merges the rules of a host, given in the order of Compare. Rules whose namespace,
// selector or exportTo differ stay apart, except that a rule for more namespaces counts also
// in the older ones for fewer. A rule with a selector stays in its namespace. Of the mesh's default export only "." is honoured;
// anything else is public. (Istio: mergeDestinationRule, setDestinationRules.)
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

// merge adds a younger rule while r is made.
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

// Client is who asks for the rule of a service.
type Client struct {
	Namespace, ServiceNamespace, RootNamespace string
	// Selects says whether a selector selects the client; nil for none does.
	Selects func(labels.Instance) bool
}

// Choice has the rules that a client may use for a service: the first visible rule of
// the client's own namespace, of the service's, and of the root namespace.
type Choice struct {
	Own, Service, Root *Rule
}

// Best is the rule that the client uses, nil for none.
func (c Choice) Best() *Rule { return cmp.Or(c.Own, c.Service, c.Root) }

// Or fills in what a wider pattern offers where c has nothing.
func (c Choice) Or(wider Choice) Choice {
	return Choice{cmp.Or(c.Own, wider.Own), cmp.Or(c.Service, wider.Service), cmp.Or(c.Root, wider.Root)}
}

// Choose chooses among the rules of one host. To a client that it does not select, a rule
// with a selector is as if it were not there.
func (c Client) Choose(rules []*Rule) Choice {
	var out Choice
	for _, r := range rules {
		if !r.ExportTo.VisibleTo(c.Namespace) || r.Selector != nil && !c.selectedBy(r.Selector) {
			continue
		}
		// In the root namespace only a private rule is meant for its own clients;
		// the others are for all, and come last.
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
