package security

import (
	"slices"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// EnvoyFilter judges an EnvoyFilter: whether it selects a proxy. gRPC clients have no patches.
func EnvoyFilter(j *verdict.Judge, object *config.Config) {
	s := selectionOf(j, object)
	s.selected = slices.DeleteFunc(s.selected, func(c chosen) bool { return c.Type == discovery.Proxyless })
	s.unused()
}

// SelectsConnected says whether an EnvoyFilter selects an Envoy that is connected.
func SelectsConnected(j *verdict.Judge, object *config.Config) bool {
	s := selectionIn(j, object, verdict.ConnectedRow)
	return len(s.selected) > 0
}
