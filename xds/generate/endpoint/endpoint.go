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
	var localities []envoy.Endpoints
	if row := v.Endpoints(o.Service); row != nil {
		localities = o.Localities(v.Shape(), row.Endpoints)
	}
	return resource.New(name, envoy.LoadAssignment(name, localities))
}

// Empty implements generate.Emptier.
func (Generator) Empty(name string) (*resource.Resource, error) {
	return resource.New(name, envoy.LoadAssignment(name, nil))
}
