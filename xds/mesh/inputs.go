package mesh

import (
	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/kube/clustersecret"
	"github.com/portolan-mesh/portolan/discovery/modules"
	"github.com/portolan-mesh/portolan/discovery/rows"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/seal"
	"github.com/portolan-mesh/portolan/xds/meshconfig"
)

// Inputs is everything that generated configuration depends on, as of one
// commit. It is never modified. The zero Inputs is an empty mesh.
type Inputs struct {
	// Configs are the configuration objects that all handlers have seen.
	Configs *cache.Snapshot
	// Services and Endpoints are the rows of the registries by rows.Key.
	Services  pmap.Map[*ServiceRow]
	Endpoints pmap.Map[*EndpointRow]
	// MeshFile is the mesh configuration of the servers' file, which lies under the object of
	// Configs; nil stands for meshconfig.Default. See PushContext.MeshConfig.
	MeshFile *meshconfig.Config
	// SealingKeys are the keys that open secrets; nil for none.
	SealingKeys *seal.Ring
	// ClusterSecrets are the secrets of clusters of Kubernetes, which are no objects of Configs.
	// One of Configs with the same namespace and name goes before.
	ClusterSecrets clustersecret.Set
	// Modules are the modules of WasmPlugins that were fetched.
	Modules modules.Set
}

// The rows of the registries.
type (
	ServiceRow  = rows.Service
	EndpointRow = rows.Endpoints
)
