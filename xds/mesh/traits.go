package mesh

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
)

// traitTable counts the DestinationRules that balance by a trait of the proxy. Classes
// know only the traits that something asks for, so that proxies of several localities are
// of one class where nothing does.
type traitTable struct{ tableOf[int] }

var (
	traitUseRows = traitTable{tableOf[int]{traitUses}}
	// traitRows are the same traits. It changes only as they come and go.
	traitRows = tableOf[bool]{traits}
)

func (t traitTable) follow(from, to *PushContext) {
	count := func(c *config.Config, by int) {
		for _, trait := range destination.Traits(c.Spec.(*networking.DestinationRule)) {
			n := t.of(to).Value(trait) + by
			t.put(to, trait, n, n > 0)
			traitRows.put(to, trait, true, n > 0)
		}
	}
	eachObject(from, to, destinationRulePath, func(c pmap.Change[*config.Config]) {
		if c.HasNew {
			count(c.New, 1)
		}
		if c.HasOld {
			count(c.Old, -1)
		}
	})
}

// traitsAt are the traits that anything asks for, with the values that a place has, in
// order.
func (p *PushContext) traitsAt(place discovery.Place) string {
	asked := slices.Collect(traitRows.of(p).Keys())
	if mesh := p.mesh.GetLocalityLbSetting(); len(mesh.GetDistribute()) > 0 || slices.Contains(asked, destination.LocalityTrait) {
		asked = append(asked, destination.TraitsOf(mesh)...)
	}
	asked = append(asked, destination.TraitsOfZones(p.mesh.GetZoneAwareLbSetting())...)
	slices.Sort(asked)
	var out []string
	for _, trait := range slices.Compact(asked) {
		value := place.Locality
		if trait == destination.RegionTrait {
			value = place.Region()
		} else if key, ok := strings.CutPrefix(trait, destination.LabelTrait); ok {
			value = place.Label(key)
		}
		if value != "" {
			out = append(out, trait+"="+value)
		}
	}
	return strings.Join(out, class.Separator)
}

// OfTrait says whether the query was for a trait of the class.
func (d Dependency) OfTrait() bool { return d.Query.Row == RowKey{Self, selfTrait} }
