package cachetest

import (
	networking "istio.io/api/networking/v1alpha3"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// InFile makes a ServiceEntry of a directory, in the namespace shop, with a version that is
// no revision.
func InFile(name, version string) *config.Config {
	return &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.ServiceEntry, Namespace: "shop", Name: name, Source: "dir", ResourceVersion: version, UID: "of " + name, Generation: 1},
		Spec: &networking.ServiceEntry{Hosts: []string{name + ".example"}, Resolution: networking.ServiceEntry_STATIC},
	}
}

// DirectoryOf makes a snapshot of the objects of a directory.
func DirectoryOf(revision int64, objects ...*config.Config) *cache.Snapshot {
	var configs pmap.Map[*config.Config]
	for _, object := range objects {
		configs = configs.Set(object.Key().Path(), object)
	}
	return cache.NewSnapshot(revision, configs)
}
