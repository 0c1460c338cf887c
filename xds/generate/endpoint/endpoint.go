// Package endpoint generates the load assignments of EDS clusters. Each has the name of
// its cluster. Every EDS cluster has one, empty if the service has no endpoints, since a
// proxy waits for it.
package endpoint

import (
	"iter"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/xds/envoy/upstream"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Generator makes load assignments.
type Generator struct{}

var (
	_ generate.Generator   = Generator{}
	_ generate.Emptier     = Generator{}
	_ generate.Gatewayless = Generator{}
)

// TypeURL implements generate.Generator.
func (Generator) TypeURL() string { return resource.EndpointType }

// Gatewayless implements generate.Gatewayless.
func (Generator) Gatewayless() {}

// Affected implements generate.Generator. An assignment appears and disappears with its
// cluster, not with its endpoints.
func (Generator) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] { return cluster.Names(v, d) }

// Build implements generate.Generator.
func (Generator) Build(v *mesh.View, name string) (proto.Message, []resource.Need, error) {
	o, ok := cluster.Find(v, name)
	if !ok || o.Type(v.Shape()) != upstream.EDS {
		return nil, nil, nil
	}
	row, spread := v.Endpoints(o.Service), o.LocalityPreference(v)
	switch {
	case row == nil:
		return upstream.LoadAssignment(name, nil), nil, nil
	case len(row.Localities()) > 0 && !spread.ByLabels():
		if made, err := assemble(v, name, o, spread, row.Localities()); made != nil || err != nil {
			return made, nil, err
		}
	}
	return upstream.LoadAssignment(name, o.Selection(v).Arrange(spread, row.Endpoints)), nil, nil
}

// encoded is an encoded locality, or the error of encoding it.
type encoded struct {
	locality upstream.EncodedLocality
	err      error
}

// assemble makes the assignment of a service with many endpoints. One changed endpoint
// costs the encoding of its locality, and a copy of the others' bytes. It returns nil if
// the weights are too large for that, see upstream.AssembleLoadAssignment.
func assemble(v *mesh.View, name string, o cluster.Outbound, spread *cluster.LocalityPreference, localities []*rows.Locality) (proto.Message, error) {
	parts, of := make([]upstream.EncodedLocality, 0, len(localities)), o.Selection(v)
	for _, l := range localities {
		made := l.Derived(of, func() any { return encode(of, l) }).(encoded)
		if made.err != nil {
			return nil, made.err
		}
		parts = append(parts, made.locality)
	}
	if spread != nil {
		parts = placed(spread, localities, parts)
	}
	return assembled(name, parts), nil
}

// assembled joins encoded localities. It returns nil when assemble must.
func assembled(name string, parts []upstream.EncodedLocality) proto.Message {
	body, ok := upstream.AssembleLoadAssignment(name, parts)
	if !ok {
		return nil
	}
	return resource.Encoded{Message: upstream.LoadAssignment(name, nil), Body: body}
}

// placed sets the priorities and weights of encoded localities.
func placed(spread *cluster.LocalityPreference, localities []*rows.Locality, parts []upstream.EncodedLocality) []upstream.EncodedLocality {
	places := make([]cluster.Locality, len(parts))
	for i, l := range localities {
		places[i] = cluster.Locality{Label: l.Label, Weight: parts[i].Weight()}
	}
	spread.Place(places)
	for i, p := range places {
		parts[i] = parts[i].Placed(p.Priority, p.Weight)
	}
	return parts
}

func encode(of cluster.Selection, l *rows.Locality) encoded {
	var out encoded
	for _, selected := range of.Localities(l.Endpoints) { // one, or none
		out.locality, out.err = upstream.EncodeLocality(selected)
	}
	return out
}

// Empty implements generate.Emptier.
func (Generator) Empty(name string) (proto.Message, []resource.Need, error) {
	return upstream.LoadAssignment(name, nil), nil, nil
}
