// Package endpoint generates the load assignments of the clusters whose
// endpoints are pushed. Each goes by the name of its cluster, and there is one
// for each such cluster, empty where nothing serves it: a proxy waits for it.
package endpoint

import (
	"iter"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/generate/cluster"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// TypeURL is the type of load assignments.
const TypeURL = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"

// Generator makes load assignments.
type Generator struct{}

var (
	_ generate.Generator = Generator{}
	_ generate.Emptier   = Generator{}
)

// TypeURL implements generate.Generator.
func (Generator) TypeURL() string { return TypeURL }

// Affected implements generate.Generator. An assignment appears and goes with
// its cluster, never with its endpoints.
func (Generator) Affected(v *mesh.View, d mesh.Delta) iter.Seq[string] { return cluster.Names(v, d) }

// Build implements generate.Generator.
func (Generator) Build(v *mesh.View, name string) (*resource.Resource, error) {
	o, ok := cluster.Find(v, name)
	if !ok || o.Type(v.Shape()) != envoy.EDS {
		return nil, nil
	}
	row := v.Endpoints(o.Service)
	switch {
	case row == nil:
		return resource.New(name, envoy.LoadAssignment(name, nil))
	case len(row.Localities()) > 0:
		return assemble(v, name, o, row.Localities())
	}
	return resource.New(name, envoy.LoadAssignment(name, o.Localities(v.Shape(), row.Endpoints)))
}

// encoded is a locality, or why there is none.
type encoded struct {
	locality envoy.EncodedLocality
	err      error
}

// assemble makes the assignment of many endpoints: one that changed costs the
// encoding of its locality, and a copy of the others.
func assemble(v *mesh.View, name string, o cluster.Outbound, localities []*mesh.Locality) (*resource.Resource, error) {
	var parts []envoy.EncodedLocality
	for _, l := range localities {
		made := l.Derived(o.Selection(v.Shape()), func() any { return encode(v.Shape(), o, l) }).(encoded)
		if made.err != nil {
			return nil, made.err
		}
		parts = append(parts, made.locality)
	}
	own, err := resource.New(name, envoy.LoadAssignment(name, nil))
	if err != nil {
		return nil, err
	}
	return own.With(envoy.AssembleLoadAssignment(name, parts), nil), nil
}

func encode(shape mesh.Shape, o cluster.Outbound, l *mesh.Locality) encoded {
	var out encoded
	for _, selected := range o.Localities(shape, l.Endpoints) { // one, or none
		out.locality, out.err = envoy.EncodeLocality(selected)
	}
	return out
}

// Empty implements generate.Emptier.
func (Generator) Empty(name string) (*resource.Resource, error) {
	return resource.New(name, envoy.LoadAssignment(name, nil))
}
