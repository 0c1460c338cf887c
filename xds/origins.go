package xds

import (
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
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// origins finds the objects behind resources of a type, which it knows by its index.
type origins struct {
	desired desiredResources // nil knows none
	index   int
}

// objectsOf returns the objects behind a rejected resource: those that its metadata names,
// with the delegates of VirtualServices, else those that it was built from. Of a resource
// with parts only those parts count that the client does not have already.
func (o origins) objectsOf(refused, held *resource.Resource) []config.Key {
	paths := map[string]struct{}{}
	if len(refused.Parts) == 0 {
		addOrigins(refused, paths)
	}
	for _, part := range changedParts(refused, held) {
		addOrigins(part, paths)
	}
	var keys []config.Key
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		if key, ok := generate.KeyOfPath(path); ok {
			keys = append(append(keys, key), o.delegates(key)...)
		}
	}
	slices.SortFunc(keys, func(a, b config.Key) int { return strings.Compare(a.Path(), b.Path()) })
	keys = slices.Compact(keys)
	if len(keys) == 0 && o.desired != nil {
		keys = o.desired.Origins(o.index, refused.Name)
	}
	return keys
}

// delegates are those of a VirtualService, none for another object.
func (o origins) delegates(key config.Key) (keys []config.Key) {
	if o.desired == nil || o.desired.Context() == nil || key.Kind != schema.VirtualService {
		return nil
	}
	if vs := o.desired.Context().VirtualService(key.Path()); vs != nil {
		for _, d := range vs.Delegates {
			keys = append(keys, d.Config.Key())
		}
	}
	return keys
}

// changedParts returns the parts of r that other lacks, or has in another version.
func changedParts(r, other *resource.Resource) []*resource.Resource {
	has := map[string]string{}
	if other != nil {
		for _, part := range other.Parts {
			has[part.Name] = part.Version
		}
	}
	var out []*resource.Resource
	for _, part := range r.Parts {
		if has[part.Name] != part.Version {
			out = append(out, part)
		}
	}
	return out
}

// addOrigins adds the config paths that the metadata of a resource names.
func addOrigins(r *resource.Resource, paths map[string]struct{}) {
	body, err := r.Body.UnmarshalNew()
	if err != nil {
		return
	}
	metadata := (&corev3.Metadata{}).ProtoReflect().Descriptor().FullName()
	// A resource that cannot be decoded names no objects.
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
