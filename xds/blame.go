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
	"github.com/portolan-mesh/portolan/xds/resource"
	"github.com/portolan-mesh/portolan/xds/stream"
)

// blame returns the objects that a rejection is about, in the order of their paths:
// those which the refused resources that its words name come from. A resource that
// was refused alone need not be named.
func blame(message string, session *stream.Session, from origins) []config.Key {
	var refused, named []*resource.Resource
	n := 0
	for name, r := range session.Refused() {
		n++
		if r == nil {
			continue
		}
		refused = append(refused, r)
		if mentions(message, name) {
			named = append(named, r)
		}
	}
	if n == 1 && len(named) == 0 {
		named = refused
	}
	found := map[string]config.Key{}
	for _, r := range named {
		for _, key := range from.of(r, session.Held(r.Name)) {
			found[key.Path()] = key
		}
	}
	var keys []config.Key
	for _, path := range slices.Sorted(maps.Keys(found)) {
		keys = append(keys, found[path])
	}
	return keys
}

// mentions says whether words have a name in them, and not only as a part of
// another.
func mentions(words, name string) bool {
	for rest := words; name != ""; {
		at := strings.Index(rest, name)
		if at < 0 {
			return false
		}
		before, after := rest[:at], rest[at+len(name):]
		if !nameEnds(before) && !nameBegins(after) {
			return true
		}
		rest = after
	}
	return false
}

func nameEnds(s string) bool { return s != "" && inName(s[len(s)-1]) }

// nameBegins takes a full stop for a part of a name only where one goes on.
func nameBegins(s string) bool {
	s = strings.TrimPrefix(s, ".")
	return s != "" && inName(s[0])
}

func inName(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || strings.IndexByte("_-|/", c) >= 0
}

// origins find the objects that resources of a type, by its place, come from.
type origins struct {
	place *place
	typ   int
}

// of are the objects of a refused resource: those which its metadata names, else
// those which it was built from. Of one that has parts those count that the client
// does not have already.
func (o origins) of(refused, held *resource.Resource) []config.Key {
	paths := map[string]struct{}{}
	if len(refused.Parts) == 0 {
		addOrigins(refused, paths)
	}
	for _, part := range newParts(refused, held) {
		addOrigins(part, paths)
	}
	var keys []config.Key
	for path := range paths {
		if key, ok := keyOfPath(path); ok {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 && o.place != nil && o.place.world != nil {
		keys = o.place.origins(o.typ, refused.Name)
	}
	return keys
}

// newParts are the parts of a resource that another does not have in this version.
func newParts(r, other *resource.Resource) []*resource.Resource {
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
