package xds

import (
	"cmp"
	"slices"
	"strings"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	messages "github.com/portolan-mesh/portolan/xds/envoy/message"
	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// origins finds the objects behind the resources of one type, given by its index.
type origins struct {
	desired desiredResources // if nil, no objects are found
	index   int
}

// objectsOf returns the objects to which a rejection is due, the likeliest first. Of those behind the
// resource, they are the ones that were written since the client last had it, at a revision. If nobody
// wrote any, or the client never had it, they are all that made it: then the last written come first.
func (o origins) objectsOf(refused, held *resource.Resource, since int64) []config.Key {
	candidates := o.behind(refused, held)
	if changed := o.writtenSince(candidates, since); len(changed) > 0 {
		return changed
	}
	if o.desired == nil {
		return candidates
	}
	if changed := o.writtenSince(o.desired.Origins(o.index, refused.Name), since); len(changed) > 0 {
		return changed
	}
	return candidates
}

// writtenSince returns the objects that were last written after a revision, the newest first. Those of
// one revision stay in their order.
func (o origins) writtenSince(keys []config.Key, since int64) (out []config.Key) {
	if o.desired == nil || o.desired.Context() == nil {
		return nil
	}
	configs, at := o.desired.Context().Inputs().Configs, map[config.Key]int64{}
	for _, key := range keys {
		if c := configs.Get(key); c != nil {
			if revision, known := c.Revision(); known && revision > since {
				out, at[key] = append(out, key), revision
			}
		}
	}
	slices.SortStableFunc(out, func(a, b config.Key) int { return cmp.Compare(at[b], at[a]) })
	return out
}

// behind returns the objects behind a rejected resource: the EnvoyFilters that patched it, then those
// that its metadata names, with the delegates of VirtualServices, else those that it was built from. Of
// a resource with parts, only the parts count that the client does not have already.
func (o origins) behind(refused, held *resource.Resource) []config.Key {
	patched := o.patchedBy(nil, refused)
	has := map[string]string{}
	if held != nil {
		for _, part := range held.Parts {
			has[part.Name] = part.Version
		}
	}
	var keys []config.Key
	if len(refused.Parts) == 0 {
		keys = namedIn(refused)
	}
	for _, part := range refused.Parts {
		if has[part.Name] != part.Version {
			keys = append(keys, namedIn(part)...)
			patched = o.patchedBy(patched, part)
		}
	}
	for _, key := range keys {
		keys = append(keys, o.delegates(key)...)
	}
	keys = o.written(keys)
	if len(keys) == 0 && o.desired != nil {
		keys = o.desired.Origins(o.index, refused.Name)
	} else {
		keys = inOrder(keys)
	}
	return append(patched, slices.DeleteFunc(keys, func(key config.Key) bool { return slices.Contains(patched, key) })...)
}

// patchedBy appends to keys the EnvoyFilters whose patches are in a resource, each once.
func (o origins) patchedBy(keys []config.Key, r *resource.Resource) []config.Key {
	if o.desired == nil {
		return keys
	}
	for _, p := range o.desired.Patches(r.Body.GetTypeUrl(), r.Name) {
		if p.Err == "" && !slices.Contains(keys, p.Filter) {
			keys = append(keys, p.Filter)
		}
	}
	return keys
}

// inOrder sorts objects by their paths, and keeps each once.
func inOrder(keys []config.Key) []config.Key {
	slices.SortFunc(keys, func(a, b config.Key) int { return strings.Compare(a.Path(), b.Path()) })
	return slices.Compact(keys)
}

// written replaces what is derived from Ingresses by these.
func (o origins) written(keys []config.Key) (out []config.Key) {
	if o.desired == nil || o.desired.Context() == nil {
		return keys
	}
	for _, key := range keys {
		if d := o.desired.Context().Derived(key.Path()); d != nil {
			out = append(out, d.From...)
		} else {
			out = append(out, key)
		}
	}
	return out
}

// delegates returns the delegates of a VirtualService, none for another object.
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

// namedIn returns the objects that the metadata of a resource names. A resource that cannot be
// decoded names none.
func namedIn(r *resource.Resource) (keys []config.Key) {
	body, err := r.Body.UnmarshalNew()
	if err != nil {
		return nil
	}
	_ = protorange.Range(body.ProtoReflect(), func(at protopath.Values) error {
		m, ok := at.Index(-1).Value.Interface().(protoreflect.Message)
		if !ok {
			return nil
		}
		metadata, ok := m.Interface().(*corev3.Metadata)
		if !ok {
			return nil
		}
		if key, ok := generate.KeyOfPath(messages.ConfigOf(metadata)); ok && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
		return protorange.Break
	})
	return keys
}
