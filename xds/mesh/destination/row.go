package destination

import (
	"slices"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
)

// Row holds the rules of one host name or pattern, one per namespace, exportTo and
// selector, in the order of Compare. It is never modified.
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

// Replace returns the row with add in the place of remove; either may be nil. It is nil
// if no object is left. r may be nil, an empty row. meshDefault is as for Merge.
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
