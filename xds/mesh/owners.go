package mesh

import (
	"iter"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/mesh/service"
)

// OwnerOf returns who owns the host of a row: the namespace of its oldest service.
func OwnerOf(row *HostRow) claim.Owner {
	first := row.Services[0]
	out := claim.Owner{Host: row.Hostname, Namespace: first.Namespace}
	if a := first.Service().Attributes; a.Provider == discovery.External {
		out.Object = config.Key{Kind: schema.ServiceEntry, Namespace: a.Namespace, Name: a.Name}
	}
	return out
}

// Crossings iterates over the hosts of other namespaces for which an object speaks by some of
// its claims. Objects of the root namespace are the mesh's own, and cross nothing.
func (p *PushContext) Crossings(c *config.Config, claims ...claim.Claim) iter.Seq[claim.Crossing] {
	return func(yield func(claim.Crossing) bool) {
		if c.Namespace == p.mesh.GetRootNamespace() {
			return
		}
		for _, one := range claims {
			for row := range p.hostsMatching(one.Host) {
				owner := OwnerOf(row)
				if one.Crosses(c.Namespace, owner) && !yield(claim.Crossing{Claim: one, Owner: owner}) {
					return
				}
			}
		}
	}
}

// Consents says whether the owner of a host has consented that objects of a kind in another
// namespace speak for it. As with rights, only HostGrants of the store count.
func (p *PushContext) Consents(owner claim.Owner, from claim.From) bool {
	return allowed(p.grants(owner), owner, from)
}

// grants returns the HostGrants of an owner that name its host, in order.
func (p *PushContext) grants(owner claim.Owner) []*config.Config {
	var out []*config.Config
	for object := range p.inputs.Configs.List(schema.HostGrant, owner.Namespace) {
		if grant := object.Spec.(*claim.HostGrant); object.Source == "" && grant.Names(owner.Host) {
			out = append(out, object)
		}
	}
	return out
}

func allowed(grants []*config.Config, owner claim.Owner, from claim.From) bool {
	return slices.ContainsFunc(grants, func(object *config.Config) bool {
		return object.Spec.(*claim.HostGrant).Allows(from.Kind, from.Namespace, owner.Host)
	})
}

// ownership says who may speak for a host, if the mesh asks for consent.
type ownership struct {
	claim.Owner
	services []*ServiceRow    // those in effect, the oldest first
	grants   []*config.Config // of the owner
}

func (o *ownership) equal(other *ownership) bool {
	return o != nil && other != nil && o.Owner == other.Owner && slices.Equal(o.services, other.services) && slices.Equal(o.grants, other.grants)
}

// owners holds the ownership of each host. It is empty unless the mesh asks for consent.
type owners struct{ tableOf[*ownership] }

var (
	ownerRows = owners{tableOf[*ownership]{hostOwners}}
	// claimantRows maps a host to the paths of the objects that name it, not by a pattern.
	claimantRows = claimants{groupsOf[bool](hostClaimants)}
)

func (t owners) follow(from, to *PushContext) {
	if !to.mesh.HostConsent {
		return
	}
	due := map[host.Name]bool{}
	for c := range pmap.Diff(from.inputs.Services, to.inputs.Services) {
		h, _ := rows.SplitKey(c.Key)
		due[h] = true
	}
	eachObject(from, to, hostGrantPath, func(c pmap.Change[*config.Config]) {
		for _, object := range []*config.Config{c.Old, c.New} {
			for _, pattern := range patternsOf(object) {
				for row := range to.hostsMatching(pattern) { // those of from; new ones are due anyway
					due[row.Hostname] = true
				}
			}
		}
	})
	eachObject(from, to, serviceEntryPath, func(c pmap.Change[*config.Config]) { // its services may not differ
		for _, one := range slices.Concat(claim.Of(c.Old), claim.Of(c.New)) {
			due[one.Host] = true
		}
	})
	for h := range due {
		row := to.ownershipOf(h)
		if !row.equal(t.rowsOf(to).Value(string(h))) {
			t.put(to, string(h), row, row != nil)
		}
	}
}

func patternsOf(object *config.Config) []host.Name {
	if object == nil {
		return nil
	}
	var out []host.Name
	for _, one := range object.Spec.(*claim.HostGrant).To {
		for _, pattern := range one.Hosts {
			out = append(out, host.Name(pattern))
		}
	}
	return out
}

func (p *PushContext) ownershipOf(h host.Name) *ownership {
	row := &HostRow{Hostname: h}
	for _, s := range p.inputs.Services.Prefix(rows.Key(h, "")) {
		row.Services = append(row.Services, s)
	}
	if len(row.Services) == 0 {
		return nil
	}
	slices.SortFunc(row.Services, rows.Compare)
	out := &ownership{Owner: OwnerOf(row)}
	out.grants = p.grants(out.Owner)
	for _, s := range row.Services {
		if !slices.ContainsFunc(s.Services, func(one *discovery.Service) bool { return !p.permitsService(out, one) }) {
			out.services = append(out.services, s)
		}
	}
	return out
}

// permitsService is like permits, for the ServiceEntry of a service. Other registries are the
// mesh's own.
func (p *PushContext) permitsService(o *ownership, s *discovery.Service) bool {
	if s.Attributes.Provider != discovery.External {
		return true
	}
	key := config.Key{Kind: schema.ServiceEntry, Namespace: s.Attributes.Namespace, Name: s.Attributes.Name}
	object := p.inputs.Configs.Get(key)
	if object == nil { // a source has the service without the object
		object = &config.Config{Meta: config.Meta{GroupVersionKind: key.Kind, Namespace: key.Namespace, Name: key.Name}}
	}
	return p.permits(o, object, claim.Claim{Host: o.Host})
}

// permits says whether what an object says of a host has effect. It has if the object is of
// the namespace that owns the host or of the root namespace, if the owner consents, or if its
// writer had the right to the host. A nil ownership is of a host without an owner, or of a
// mesh that asks for no consent.
func (p *PushContext) permits(o *ownership, c *config.Config, one claim.Claim) bool {
	return o == nil || c.Namespace == p.mesh.GetRootNamespace() || !one.Crosses(c.Namespace, o.Owner) ||
		claim.Entitled(c, one.Host, o.Owner) || allowed(o.grants, o.Owner, claim.From{Kind: c.Kind, Namespace: c.Namespace})
}

// permitsPattern is like permits, for an object that names the host or a pattern that covers it.
func (p *PushContext) permitsPattern(h host.Name, c *config.Config, pattern host.Name) bool {
	return p.permits(ownerRows.rowsOf(p).Value(string(h)), c, claim.Claim{Host: pattern})
}

// refused returns the hosts, not patterns, of the object for which it has no effect. A pattern
// has no effect for a host of another namespace either, but it has for others.
func (p *PushContext) refused(c *config.Config) map[string]bool {
	all := ownerRows.rowsOf(p)
	if all.Len() == 0 || p.Derived(c.Key().Path()) != nil {
		return nil // an Ingress was asked before anything was derived from it
	}
	out := map[string]bool{}
	for _, one := range claim.Of(c) {
		if !one.Host.IsWildcard() && !p.permits(all.Value(string(one.Host)), c, one) {
			out[one.Field] = true
		}
	}
	return out
}

// claimants is kept for VirtualServices, DestinationRules, Gateways and Ingresses. The services of
// ServiceEntries are in the ownership.
type claimants struct{ groups[bool] }

func (t claimants) follow(from, to *PushContext) {
	if !to.mesh.HostConsent {
		return
	}
	for _, path := range []string{virtualServicePath, destinationRulePath, gatewayPath, ingressPath} {
		eachObject(from, to, path, func(c pmap.Change[*config.Config]) {
			for _, one := range claim.Of(c.Old) {
				t.remove(to, string(one.Host), c.Key)
			}
			for _, one := range claim.Of(c.New) {
				if !one.Host.IsWildcard() {
					t.add(to, string(one.Host), c.Key, true)
				}
			}
		})
	}
}

// eachClaimant is like eachObject, but also calls f for unchanged objects that name a host
// whose ownership changed, and for derived objects.
func eachClaimant(from, to *PushContext, path string, f func(pmap.Change[*config.Config])) {
	eachObject(from, to, path, func(c pmap.Change[*config.Config]) {
		if !c.HasOld || !c.HasNew { // what users wrote goes before what is derived
			c = changeOf(c.Key, from.objectAt(c.Key), to.objectAt(c.Key))
		}
		f(c)
	})
	for c := range derivedChanges(from, to, path) {
		f(c)
	}
	var due []string
	for c := range ownerRows.diff(from, to) {
		for claimant := range claimantRows.rowsOf(to).Value(c.Key).Keys() {
			if strings.HasPrefix(claimant, path) {
				due = append(due, claimant)
			}
		}
	}
	slices.Sort(due)
	for _, claimant := range slices.Compact(due) {
		object := to.objectAt(claimant)
		if object == from.objectAt(claimant) {
			f(pmap.Change[*config.Config]{Key: claimant, Old: object, New: object, HasOld: true, HasNew: true})
		}
	}
}

// followOwners takes the services in effect from the ownership of each host.
func (t hosts) followOwners(from, to *PushContext) {
	for c := range ownerRows.diff(from, to) {
		var row *HostRow
		if c.HasNew {
			row = &service.Host{Hostname: host.Name(c.Key), Services: c.New.services}
		}
		if !row.Equal(t.rowsOf(to).Value(c.Key)) {
			t.set(to, host.Name(c.Key), row)
		}
	}
}
