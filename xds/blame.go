package xds

import (
	"iter"
	"maps"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// blame returns the objects that a rejection is about, in the order of their
// paths: those which the refused resources that its words name were built from.
// A resource that was refused alone need not be named. Not every resource tells
// what it was built from.
func blame(message string, refused iter.Seq2[string, *resource.Resource]) []config.Key {
	var named []*resource.Resource
	var only *resource.Resource
	n := 0
	for name, r := range refused {
		n++
		if only = r; r != nil && strings.Contains(message, name) {
			named = append(named, r)
		}
	}
	if n == 1 && len(named) == 0 && only != nil {
		named = append(named, only)
	}
	paths := map[string]struct{}{}
	for _, r := range named {
		addOrigins(r, paths)
	}
	var keys []config.Key
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if key, ok := keyOfPath(path); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// addOrigins adds the config paths in the metadata of a resource.
func addOrigins(r *resource.Resource, paths map[string]struct{}) {
	body, err := r.Body.UnmarshalNew()
	if err != nil {
		return
	}
	metadata := (&corev3.Metadata{}).ProtoReflect().Descriptor().FullName()
	// What cannot be read has no metadata to tell of.
	_ = protorange.Range(body.ProtoReflect(), func(at protopath.Values) error {
		m, ok := at.Index(-1).Value.Interface().(protoreflect.Message)
		if !ok || m.Descriptor().FullName() != metadata {
			return nil
		}
		if found, ok := m.Interface().(*corev3.Metadata); ok {
			if path := envoy.ConfigOf(found); path != "" {
				paths[path] = struct{}{}
			}
		}
		return protorange.Break
	})
}

// keyOfPath is the inverse of envoy.ConfigPath for the kinds that are served.
func keyOfPath(path string) (config.Key, bool) {
	parts := strings.Split(path, "/") // "", apis, group, version, namespaces, namespace, kind, name
	if len(parts) != 8 {
		return config.Key{}, false
	}
	group, version, namespace, name := parts[2], parts[3], parts[5], parts[7]
	for _, kind := range schema.Pilot().All() {
		if kind.Group == group && envoy.ConfigPath(group, version, kind.Kind, namespace, name) == path {
			return config.Key{Kind: kind.GroupVersionKind, Namespace: namespace, Name: name}, true
		}
	}
	return config.Key{}, false
}
