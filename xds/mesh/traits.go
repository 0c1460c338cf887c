package mesh

import (
	"slices"
	"strings"

	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/mesh/class"
	"github.com/portolan-mesh/portolan/xds/mesh/destination"
)

// followTraits follows the traits of proxies by which DestinationRules and services balance. A class
// has only traits that some configuration reads, so proxies of several localities share a
// class where none does.
func (t attachmentTable) followTraits(from, to *PushContext) {
	count := func(c *config.Config, by int) {
		for _, trait := range destination.Traits(c.Spec.(*networking.DestinationRule)) {
			t.count(to, attachmentKey(class.Trait, ""), trait, nil, by)
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
	for c := range pmap.Diff(from.inputs.Services, to.inputs.Services) {
		t.countServices(to, c.New, 1)
		t.countServices(to, c.Old, -1)
	}
}

// countServices counts the traits by which the services of a row balance; nil has none.
func (t attachmentTable) countServices(to *PushContext, row *ServiceRow, by int) {
	if row == nil {
		return
	}
	for _, s := range row.Services {
		for _, trait := range destination.TraitsOfService(s) {
			t.count(to, attachmentKey(class.Trait, ""), trait, nil, by)
		}
	}
}

// traitsAt returns the traits that some configuration reads, with their values at a
// place, in order.
func (p *PushContext) traitsAt(who attachedTo) []string {
	place := who.workload
	asked := slices.Collect(p.attachmentsIn(class.Trait, "").Keys())
	ejects := p.mesh.GetDefaultTrafficPolicy().GetOutlierDetection() != nil
	if mesh := p.mesh.GetLocalityLbSetting(); ejects || len(mesh.GetDistribute()) > 0 || slices.Contains(asked, destination.LocalityTrait) {
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
	return out
}

// OfTrait says whether the query read a trait of the class.
func (d Dependency) OfTrait() bool { return d.Query.Row == RowKey{Self, selfTrait} }
