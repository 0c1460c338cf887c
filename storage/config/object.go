package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	metav1alpha1 "istio.io/api/meta/v1alpha1"

	"github.com/portolan-mesh/portolan/storage/spelling"
)

// specField is the field of a document that holds the spec, unless the spec is a TopLevel.
const specField = "spec"

// documentFields are the fields that the documents of all kinds have.
var documentFields = []string{"apiVersion", "kind", "metadata", "status"}

// nestedFields are the fields of a document whose spec stands under spec.
var nestedFields = append([]string{specField}, documentFields...)

// unknownField returns the message of a fault: the field is not among those known.
func unknownField(name string, known []string) string {
	if meant := spelling.Nearest(name, known); meant != "" {
		return "unknown field: did you mean " + meant + "?"
	}
	return "unknown field"
}

// fieldPath returns the path of a field of the value at a path, which is empty for the
// document.
func fieldPath(path, name string) string {
	if path == "" {
		return short(name)
	}
	return path + "." + short(name)
}

// fault is an error of one field of an object. A refused field can be read, but must not be
// stored.
type fault struct {
	field, message string
	refused        bool
}

// object decodes one object and collects its faults.
type object struct {
	// keepServerFields makes decode read the fields that a server sets; else it ignores
	// them.
	keepServerFields bool
	// later leaves a spec that is a message unread if all else is without a fault.
	later bool
	// veiled says that no fault may show a value: the spec is Veiled.
	veiled bool

	kind, namespace, objectName string // for the object's name in errors
	faults                      []fault

	config *Config
	spec   json.RawMessage // see Document
	unread Codec           // see Document
}

// fail reports a field that cannot be read.
func (o *object) fail(field, format string, args ...any) { o.add(field, false, format, args...) }

// reportUnknown reports a field that is not among those known at a path.
func (o *object) reportUnknown(path, name string, known []string) {
	o.fail(fieldPath(path, name), "%s", unknownField(name, known))
}

// refuse reports a field that can be read, but must not be stored.
func (o *object) refuse(field, format string, args ...any) { o.add(field, true, format, args...) }

func (o *object) add(field string, refused bool, format string, args ...any) {
	switch n := len(o.faults); {
	case n < maxFaults:
		o.faults = append(o.faults, fault{field, fmt.Sprintf(format, args...), refused})
	case n == maxFaults:
		o.faults = append(o.faults, fault{"", moreFaults, refused})
	}
}

// full says that no more faults are reported.
func (o *object) full() bool { return len(o.faults) > maxFaults }

func (o *object) faultTexts() []string {
	texts := make([]string, len(o.faults))
	for i, f := range o.faults {
		texts[i] = strings.TrimPrefix(f.field+": "+f.message, ": ")
	}
	return texts
}

// name is the Key.String of the object, as far as the document names it.
func (o *object) name() string {
	if o.objectName == "" {
		return strings.ToLower(short(o.kind))
	}
	k := Key{Kind: GroupVersionKind{Kind: short(o.kind)}, Namespace: short(o.namespace), Name: short(o.objectName)}
	return k.String()
}

// decode sets config. It does so only where no fault was found before.
func (o *object) decode(raw json.RawMessage, resolve Resolver) {
	members := o.members("", raw)
	if members == nil {
		return
	}
	if members["apiVersion"] == nil && members["kind"] == nil {
		o.fail("", "is no object: it has neither apiVersion nor kind, such as networking.istio.io/v1 and VirtualService")
		return
	}
	c := &Config{}
	o.config = c
	apiVersion := o.text("apiVersion", members["apiVersion"])
	o.kind = o.text("kind", members["kind"])
	o.meta(c, members["metadata"])
	switch {
	case apiVersion == "":
		o.outside(members)
		o.fail("apiVersion", "is missing: say which API this is, such as networking.istio.io/v1")
	case o.kind == "":
		o.outside(members)
		o.fail("kind", "is missing: say what this is, such as VirtualService")
	default:
		o.typed(c, apiVersion, raw, members, resolve)
	}
}

// outside reports unknown fields at the top level of a document whose spec stands under
// spec.
func (o *object) outside(members map[string]json.RawMessage) {
	for _, name := range sortedKeys(members) {
		if !slices.Contains(nestedFields, name) {
			o.reportUnknown("", name, nestedFields)
		}
	}
}

// typed decodes what depends on the kind.
func (o *object) typed(c *Config, apiVersion string, raw json.RawMessage, members map[string]json.RawMessage, resolve Resolver) {
	t, err := resolve(apiVersion, o.kind)
	if err != nil { // and its fields are not known either
		o.fail("", "%v", err)
		return
	}
	spec := members[specField]
	if t.Codec.Path() == "" {
		spec = atTopLevel(members)
	} else {
		o.outside(members)
	}
	if o.tooDeep(raw) {
		return
	}
	c.GroupVersionKind = t.GroupVersionKind
	if _, isMessage := t.Codec.New().(proto.Message); isMessage && len(spec) > 0 && !isNull(spec) {
		if o.spec = spec; o.later && len(o.faults) == 0 {
			o.unread = t.Codec
			return
		}
	}
	c.Spec = t.Codec.decode(o, spec)
	o.keepText(t.Codec, spec)
	if status := members["status"]; o.keepServerFields && len(status) > 0 && !isNull(status) {
		c.Status = &metav1alpha1.IstioStatus{}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(status, c.Status); err != nil {
			o.fail("status", "%s", protoError(err))
		}
	}
}

// atTopLevel returns the spec whose fields are members of a document.
func atTopLevel(members map[string]json.RawMessage) json.RawMessage {
	own := maps.Clone(members)
	for _, name := range documentFields {
		delete(own, name)
	}
	text, _ := structure{}.toJSON(own) // it was read from JSON
	return text
}

// members returns the members of a mapping; anything else is a fault, and nil. known are
// the fields that the mapping may have; empty if they are not known.
func (o *object) members(field string, raw json.RawMessage, known ...string) map[string]json.RawMessage {
	if _, isMapping := inside(raw, '{'); !isMapping {
		o.fail(field, "must be a mapping, is %s%s", o.shortened(raw), o.withFields(known, raw))
		return nil
	}
	return maps.Collect(Members(raw))
}

// maxFields is how many fields of a mapping an error names.
const maxFields = 8

// withFields lists the fields of a mapping, for the error of a value that is no mapping.
func (o *object) withFields(known []string, raw json.RawMessage) string {
	switch n := len(known); {
	case n == 0:
		return ""
	case n == 1 && len(raw) > 0 && raw[0] >= '0' && raw[0] <= '9':
		return fmt.Sprintf(": write {%s: %s}", known[0], o.shortened(raw))
	case n == 1:
		return ": it has the field " + known[0]
	case n > maxFields:
		return fmt.Sprintf(": it has the fields %s ...", strings.Join(known[:maxFields], ", "))
	}
	return ": it has the fields " + strings.Join(known, ", ")
}

// text returns an empty string for absent and null.
func (o *object) text(field string, raw json.RawMessage) string {
	if len(raw) == 0 || isNull(raw) {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		o.fail(field, "%s", o.mustBeText(raw))
	}
	return s
}

// texts returns a mapping of strings, nil if it is empty.
func (o *object) texts(field string, raw json.RawMessage) map[string]string {
	if isNull(raw) {
		return nil
	}
	members := o.members(field, raw)
	if len(members) == 0 {
		return nil
	}
	out := make(map[string]string, len(members))
	for _, key := range sortedKeys(members) {
		at := field + "[" + short(key) + "]"
		if isNull(members[key]) {
			o.fail(at, "%s", o.mustBeText(members[key]))
			continue
		}
		out[key] = o.text(at, members[key])
	}
	return out
}

// into decodes raw into an empty message at a path, and reports faults field by field.
func (o *object) into(path string, into proto.Message, raw json.RawMessage) {
	if len(raw) == 0 || isNull(raw) {
		return
	}
	if protojson.Unmarshal(raw, into) == nil {
		return
	}
	err := protojson.Unmarshal(secondsOnly(into.ProtoReflect().Descriptor(), raw), into)
	if err == nil {
		return
	}
	before := len(o.faults)
	o.message(path, into.ProtoReflect().Descriptor(), raw)
	if len(o.faults) == before {
		o.fail(path, "%s", protoError(err))
	}
}

func (o *object) mustBeText(raw json.RawMessage) string {
	if c := raw[0]; c == '{' || c == '[' || c == 'n' {
		return "must be a string, is " + o.shortened(raw)
	}
	return fmt.Sprintf("must be a string, is %s: put it in quotes", o.shortened(raw))
}

// shortened returns a value for an error, shortened. It does not show a value of a Veiled spec.
func (o *object) shortened(raw json.RawMessage) string {
	if o.veiled {
		return "something else"
	}
	var out bytes.Buffer
	inText, escaped := false, false
	for i := 0; i < len(raw) && out.Len() <= utf8.UTFMax*maxShown; i++ {
		c := raw[i]
		if !inText && (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
			continue
		}
		inText = inText != (c == '"' && !escaped)
		escaped = inText && c == '\\' && !escaped
		out.WriteByte(c)
	}
	if out.Len() == 0 {
		return "nothing"
	}
	return short(strings.ToValidUTF8(out.String(), ""))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
