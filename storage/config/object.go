package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	metav1alpha1 "istio.io/api/meta/v1alpha1"
)

const unknownField = "unknown field"

// fault is what is wrong with one field of an object.
type fault struct{ field, message string }

// object decodes one object and collects its faults.
type object struct {
	// keepServerFields reads what a server sets; else it is ignored.
	keepServerFields bool

	kind, namespace, objectName string // for the object's name in errors
	faults                      []fault
}

func (o *object) fail(field, format string, args ...any) {
	o.faults = append(o.faults, fault{field, fmt.Sprintf(format, args...)})
}

// faultTexts are the faults in words.
func (o *object) faultTexts() []string {
	texts := make([]string, len(o.faults))
	for i, f := range o.faults {
		texts[i] = f.field + ": " + f.message
	}
	return texts
}

// name is Key.String of what is known of the object.
func (o *object) name() string {
	if o.objectName == "" {
		return strings.ToLower(o.kind)
	}
	k := Key{Kind: GroupVersionKind{Kind: o.kind}, Namespace: o.namespace, Name: o.objectName}
	return k.String()
}

// decode returns the object, which is of use only where no fault was found.
func (o *object) decode(raw json.RawMessage, resolve Resolver) *Config {
	members := o.members("", raw)
	if members == nil {
		return nil
	}
	c := &Config{}
	apiVersion := o.text("apiVersion", members["apiVersion"])
	o.kind = o.text("kind", members["kind"])
	o.meta(c, members["metadata"])
	for _, name := range sortedKeys(members) {
		switch name {
		case "apiVersion", "kind", "metadata", "spec", "status":
		default:
			o.fail(name, unknownField)
		}
	}
	switch {
	case apiVersion == "":
		o.fail("apiVersion", "is missing: say which API this is, such as networking.istio.io/v1")
	case o.kind == "":
		o.fail("kind", "is missing: say what this is, such as VirtualService")
	default:
		o.typed(c, apiVersion, members, resolve)
	}
	return c
}

// typed decodes what depends on the kind.
func (o *object) typed(c *Config, apiVersion string, members map[string]json.RawMessage, resolve Resolver) {
	t, err := resolve(apiVersion, o.kind)
	if err != nil {
		o.fail("", "%v", err)
		return
	}
	c.GroupVersionKind = t.GroupVersionKind
	c.Spec = t.NewSpec()
	o.into("spec", c.Spec, members["spec"])
	if status := members["status"]; o.keepServerFields && len(status) > 0 && !isNull(status) {
		c.Status = &metav1alpha1.IstioStatus{}
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(status, c.Status); err != nil {
			o.fail("status", "%s", protoError(err))
		}
	}
}

// meta reads the metadata, which every kind has alike.
func (o *object) meta(c *Config, raw json.RawMessage) {
	if len(raw) == 0 || isNull(raw) {
		return
	}
	members := o.members("metadata", raw)
	o.namespace = o.text("metadata.namespace", members["namespace"])
	o.objectName = o.text("metadata.name", members["name"])
	c.Namespace, c.Name = o.namespace, o.objectName
	for _, name := range sortedKeys(members) {
		field, value := "metadata."+name, members[name]
		switch name {
		case "name", "namespace", "managedFields", "selfLink":
		case "labels":
			c.Labels = o.texts(field, value)
		case "annotations":
			c.Annotations = o.texts(field, value)
		case "resourceVersion":
			c.ResourceVersion = o.text(field, value)
		case "creationTimestamp", "generation", "uid":
			if o.keepServerFields {
				o.serverField(c, name, value)
			}
		case "generateName", "ownerReferences", "finalizers", "deletionTimestamp", "deletionGracePeriodSeconds":
			if !isNull(value) && !bytes.Equal(value, []byte("[]")) && !bytes.Equal(value, []byte(`""`)) {
				o.fail(field, "is not supported: leave it out")
			}
		default:
			o.fail(field, unknownField)
		}
	}
}

func (o *object) serverField(c *Config, name string, raw json.RawMessage) {
	field := "metadata." + name
	switch {
	case isNull(raw):
	case name == "uid":
		c.UID = o.text(field, raw)
	case name == "generation":
		if json.Unmarshal(raw, &c.Generation) != nil {
			o.fail(field, "must be a whole number, is %s", shown(raw))
		}
	default:
		created, err := time.Parse(time.RFC3339, o.text(field, raw))
		if err != nil {
			o.fail(field, "must be a time such as 2026-01-31T12:00:00Z, is %s", shown(raw))
			return
		}
		c.CreationTimestamp = created.UTC().Truncate(time.Second)
	}
}

// members are those of a mapping; nil and a fault where raw is something else.
func (o *object) members(field string, raw json.RawMessage) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		o.fail(field, "must be a mapping, is %s", shown(raw))
	}
	return members
}

// text is a string; absent and null are empty.
func (o *object) text(field string, raw json.RawMessage) string {
	if len(raw) == 0 || isNull(raw) {
		return ""
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		o.fail(field, "%s", mustBeText(raw))
	}
	return s
}

// texts is a mapping of strings, nil where it is empty.
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
		if isNull(members[key]) {
			o.fail(field+"["+key+"]", "%s", mustBeText(members[key]))
			continue
		}
		out[key] = o.text(field+"["+key+"]", members[key])
	}
	return out
}

// into decodes raw into an empty message at a path, and where that fails says
// why, field by field.
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

// duplicates reports the keys that are set twice, which encoding/json takes
// without a word.
func (o *object) duplicates(data []byte) {
	tokens := json.NewDecoder(bytes.NewReader(data))
	tokens.UseNumber()
	o.duplicatesOf(tokens, "")
}

func (o *object) duplicatesOf(tokens *json.Decoder, path string) {
	token, err := tokens.Token()
	if err != nil {
		return
	}
	switch token {
	case json.Delim('{'):
		seen := map[string]bool{}
		for tokens.More() {
			key, err := tokens.Token()
			if err != nil {
				return
			}
			field := strings.TrimPrefix(fmt.Sprintf("%s.%s", path, key), ".")
			if seen[field] {
				o.fail(field, "is set twice")
			}
			seen[field] = true
			o.duplicatesOf(tokens, field)
		}
		_, _ = tokens.Token()
	case json.Delim('['):
		for i := 0; tokens.More(); i++ {
			o.duplicatesOf(tokens, fmt.Sprintf("%s[%d]", path, i))
		}
		_, _ = tokens.Token()
	}
}

func mustBeText(raw json.RawMessage) string {
	if c := raw[0]; c == '{' || c == '[' || c == 'n' {
		return "must be a string, is " + shown(raw)
	}
	return fmt.Sprintf("must be a string, is %s: put it in quotes", shown(raw))
}

// shown is a value as an error shows it, shortened.
func shown(raw json.RawMessage) string {
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return "nothing"
	}
	const limit = 60
	if s := []rune(compact.String()); len(s) > limit {
		return string(s[:limit]) + "..."
	}
	return compact.String()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
