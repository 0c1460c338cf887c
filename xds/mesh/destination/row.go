package destination

import (
	"slices"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
)

// Row is the rules of one host name or pattern, one per namespace and exportTo, the
// oldest first. It is never modified.
type Row struct {
	Rules   []*Rule
	sources []*config.Config
}

// All returns the rules; nil for a nil row.
func (r *Row) All() []*Rule {
	if r == nil {
		return nil
	}
	return r.Rules
}

// Replace returns the row after one object was replaced, either of them nil for none; nil
// where no object is left. A nil row has none. meshDefault is as for Merge.
func (r *Row) Replace(h host.Name, remove, add *config.Config, meshDefault []string) *Row {
	var sources []*config.Config
	if r != nil {
		sources = slices.DeleteFunc(slices.Clone(r.sources), func(c *config.Config) bool { return c == remove })
	}
	if add != nil {
		sources = append(sources, add)
	}
	if len(sources) == 0 {
		return nil
	}
	slices.SortFunc(sources, Compare)
	return &Row{Merge(h, sources, meshDefault), sources}
}
