package generate

import (
	"strings"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/names"
)

// KeyOfPath is the inverse of names.ConfigPath, for served kinds.
func KeyOfPath(path string) (config.Key, bool) {
	parts := strings.Split(path, "/") // "", apis, group, version, namespaces, namespace, kind, name
	if len(parts) != 8 {
		return config.Key{}, false
	}
	group, version, namespace, name := parts[2], parts[3], parts[5], parts[7]
	for _, kind := range schema.Pilot().All() {
		if kind.Group == group && names.ConfigPath(group, version, kind.Kind, namespace, name) == path {
			return config.Key{Kind: kind.GroupVersionKind, Namespace: namespace, Name: name}, true
		}
	}
	return config.Key{}, false
}
