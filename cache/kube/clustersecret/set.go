package clustersecret

import (
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/seal"
)

// Set is what a Reader knows at one moment. It is never modified, and equal Sets have equal
// content. The zero Set is that of a server that reads no secrets of clusters.
type Set struct {
	secrets pmap.Map[*config.Config]
	faults  pmap.Map[string]
	ring    *seal.Ring
}

// Secrets returns the secrets that proxies can use, by namespace and name as in shop/cert. Their
// specs are sealed.
func (s Set) Secrets() pmap.Map[*config.Config] { return s.secrets }

// Ring returns the keys that open the secrets; nil in the zero Set.
func (s Set) Ring() *seal.Ring { return s.ring }

// Faults returns, by namespace, why its secrets are not read, with the names of the clusters.
func (s Set) Faults() pmap.Map[string] { return s.faults }
