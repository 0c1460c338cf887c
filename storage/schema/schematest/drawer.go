package schematest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Namespace is the namespace of all objects.
const Namespace = "odd"

// Drawer draws objects. Equal seeds draw the same.
type Drawer struct {
	rand  *rand.Rand
	bases []*config.Config
}

// NewDrawer makes a drawer.
func NewDrawer(seed uint64) *Drawer {
	d := &Drawer{rand: rand.New(rand.NewPCG(seed, seed))}
	for _, document := range seeds {
		document = strings.Replace(document, "\nkind", "\napiVersion: networking.istio.io/v1\nkind", 1)
		if !strings.Contains(document, "\nmetadata: {") {
			document += "metadata: {}\n"
		}
		document = strings.Replace(document, "\nmetadata: {", "\nmetadata: {name: seed, namespace: "+Namespace+",", 1)
		object, err := read(document)
		if err != nil {
			panic(fmt.Sprintf("schematest: a seed: %v", err))
		}
		if _, err := validate(object); err != nil {
			panic(fmt.Sprintf("schematest: a seed: %v", err))
		}
		d.bases = append(d.bases, object)
	}
	return d
}

func read(document string) (*config.Config, error) {
	decoded, err := config.Decode("drawn", []byte(document), schema.Pilot().Type)
	if err != nil {
		return nil, err
	}
	if len(decoded) != 1 {
		return nil, errors.New("no object, or several")
	}
	return decoded[0].Config, nil
}

func validate(object *config.Config) ([]schema.Warning, error) {
	return schema.Pilot().Kind(object.GroupVersionKind).Validate(object)
}

// Batch draws n objects of all kinds, with distinct names. Some of them share hosts.
func (d *Drawer) Batch(n int) []*config.Config {
	out := make([]*config.Config, 0, n)
	for i := range n {
		base := d.bases[d.rand.IntN(len(d.bases))]
		if i < len(d.bases) {
			base = d.bases[i] // each once
		}
		object := d.grouped(d.Object(base), d.rand.IntN(n/sharing+1))
		object.Name = fmt.Sprintf("%s-%d", strings.ToLower(object.Kind), i)
		out = append(out, object)
	}
	return out
}

const (
	// maxChanges is how many fields of an object are changed, at most.
	maxChanges = 12
	// sharing is how many objects use the same hosts.
	sharing = 20
)

// Object draws an object like another.
func (d *Drawer) Object(base *config.Config) *config.Config {
	object := base.Clone()
	for range d.rand.IntN(maxChanges + 1) {
		next := object.Clone()
		d.change(next.Spec.(proto.Message).ProtoReflect())
		if fine(next) {
			object = next
		}
	}
	if again := accepted(object); again != nil {
		return again
	}
	return base.Clone()
}

// grouped puts the hosts of an object into a domain.
func (d *Drawer) grouped(object *config.Config, group int) *config.Config {
	text, err := config.ToJSON(object, "")
	if err != nil {
		return object
	}
	moved, err := read(strings.ReplaceAll(string(text), domain, fmt.Sprintf(".g%d%s", group, domain)))
	if err != nil || !fine(moved) {
		return object
	}
	return moved
}

// fine says whether validation accepts the object, and warns of no field without
// effect.
func fine(object *config.Config) bool {
	warnings, err := validate(object)
	return err == nil && !slices.ContainsFunc(warnings, func(w schema.Warning) bool { return strings.Contains(w.Message, "has no effect") })
}

// accepted returns an object as the API would read it; nil if it cannot be read or is not
// fine.
func accepted(object *config.Config) *config.Config {
	text, err := config.ToJSON(object, "")
	if err != nil {
		return nil
	}
	again, err := read(string(text))
	if err != nil || !fine(again) {
		return nil
	}
	return again
}

// Document returns the YAML of an object as a user would apply it; empty if it cannot be
// written.
func Document(object *config.Config) string {
	text, err := config.ToYAML(object)
	if err != nil {
		return ""
	}
	return string(text)
}

// Simplify iterates over the copies of object that lack one of its fields or elements, as
// far as validation accepts them.
func Simplify(object *config.Config) func(yield func(*config.Config) bool) {
	return func(yield func(*config.Config) bool) {
		for i := 0; ; i++ {
			next := object.Clone()
			if !omit(next.Spec.(proto.Message).ProtoReflect(), i) {
				return
			}
			if again := accepted(next); again != nil && !config.SameSpec(again.Spec, object.Spec) && !yield(again) {
				return
			}
		}
	}
}
