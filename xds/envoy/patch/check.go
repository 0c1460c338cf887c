package patch

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/anypb"
	networking "istio.io/api/networking/v1alpha3"
)

// Finding is something odd about an EnvoyFilter. Field is a path within its spec, such as
// configPatches[0].patch.value.
type Finding struct{ Field, Message string }

// Check finds what is wrong with the values of an EnvoyFilter's patches: storage/schema checks the
// rest, without Envoy's API. A fault is a value that cannot be read, or that no Envoy takes: the
// patch would never apply. A warning is about what Envoy does not know, or is to lose, and about
// names of filters that Envoy has lost.
func Check(spec *networking.EnvoyFilter) (faults, warnings []Finding) {
	for i, of := range spec.GetConfigPatches() {
		warnings = append(warnings, oldNames(of, "configPatches["+strconv.Itoa(i)+"].match.listener")...)
		path := "configPatches[" + strconv.Itoa(i) + "].patch.value"
		if of.GetPatch().GetValue() == nil || messageOf(of.GetApplyTo()) == nil {
			continue
		}
		d := &decoder{}
		m, err := valueOf(of, d, i)
		if err != nil {
			faults = append(faults, findingOf(path, err))
			continue
		}
		warnings = append(warnings, d.opaque...)
		if m == nil {
			continue
		}
		warnings = append(warnings, unknownFields(messageOf(of.GetApplyTo()).ProtoReflect().Descriptor(), of.GetPatch().GetValue(), path)...)
		for _, name := range deprecated(m.ProtoReflect()) {
			warnings = append(warnings, Finding{path, fmt.Sprintf("uses %s, which Envoy will lose", name)})
		}
	}
	return faults, warnings
}

// findingOf returns the finding of an error about the value at a path, which names a path within.
func findingOf(path string, err error) Finding {
	if at, message, ok := strings.Cut(err.Error(), " "); ok && strings.HasPrefix(at, path) {
		return Finding{at, message}
	}
	return Finding{path, err.Error()}
}

// oldNames finds the names of filters in a match that Envoy has lost. Patches still match by them.
func oldNames(of *networking.EnvoyFilter_EnvoyConfigObjectPatch, path string) []Finding {
	listener := of.GetMatch().GetListener()
	filter := listener.GetFilterChain().GetFilter()
	var out []Finding
	for _, one := range []struct {
		kind        filterKind
		name, field string
	}{
		{listenerFilter, listener.GetListenerFilter(), ".listenerFilter"},
		{networkFilter, filter.GetName(), ".filterChain.filter.name"},
		{httpFilter, filter.GetSubFilter().GetName(), ".filterChain.filter.subFilter.name"},
	} {
		if now := one.kind.canonical(one.name); now != one.name {
			out = append(out, Finding{path + one.field, fmt.Sprintf("is %s, which is now %s", one.name, now)})
		}
	}
	return out
}

// deprecated returns the deprecated fields that a message has, also within Anys: each once.
func deprecated(m protoreflect.Message) []string {
	var out []string
	found := map[protoreflect.FullName]bool{}
	var walk func(protoreflect.Message)
	walk = func(m protoreflect.Message) {
		if packed, ok := m.Interface().(*anypb.Any); ok {
			content, err := packed.UnmarshalNew()
			if err != nil {
				return // valueOf has said so
			}
			m = content.ProtoReflect()
		}
		fields := m.Descriptor().Fields()
		for i := range fields.Len() {
			field := fields.Get(i)
			if !m.Has(field) {
				continue
			}
			if name := field.FullName(); field.Options().(*descriptorpb.FieldOptions).GetDeprecated() && !found[name] {
				found[name] = true
				out = append(out, string(name))
			}
			each(m, field, walk)
		}
	}
	walk(m)
	return out
}

// each visits the messages in a field.
func each(m protoreflect.Message, field protoreflect.FieldDescriptor, visit func(protoreflect.Message)) {
	value := m.Get(field)
	switch {
	case field.IsMap():
		if field.MapValue().Message() != nil {
			value.Map().Range(func(_ protoreflect.MapKey, entry protoreflect.Value) bool {
				visit(entry.Message())
				return true
			})
		}
	case field.Message() == nil:
	case field.IsList():
		for i := range value.List().Len() {
			visit(value.List().Get(i).Message())
		}
	default:
		visit(value.Message())
	}
}
