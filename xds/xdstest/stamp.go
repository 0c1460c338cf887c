package xdstest

import (
	"bytes"
	"iter"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/portolan-mesh/portolan/xds/generate"
	"github.com/portolan-mesh/portolan/xds/mesh"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// Stamped returns types with a patch that marks every message, in a field that no API uses.
func Stamped(types []generate.ResourceType) []generate.ResourceType {
	out := slices.Clone(types)
	for i, t := range out {
		out[i] = t.Patched(stamp{})
	}
	return out
}

// Stamps counts the marks in a resource, including nested messages.
func Stamps(body *anypb.Any) int { return bytes.Count(body.GetValue(), mark) }

// mark is an encoded field with a number that no message uses.
var mark = protowire.AppendString(protowire.AppendTag(nil, 1<<20, protowire.BytesType), "stamped")

// stamp is a patch that adds the mark to every message.
type stamp struct{}

// Affected implements generate.Patch.
func (stamp) Affected(*mesh.View, mesh.Delta) iter.Seq[string] { return func(func(string) bool) {} }

// Apply implements generate.Patch.
func (stamp) Apply(_ *mesh.View, _ string, message proto.Message, needs []resource.Need) (proto.Message, []resource.Need, error) {
	if message == nil {
		return nil, nil, nil
	}
	out := proto.Clone(message)
	fields := out.ProtoReflect()
	fields.SetUnknown(append(slices.Clone(fields.GetUnknown()), mark...))
	return out, needs, nil
}
