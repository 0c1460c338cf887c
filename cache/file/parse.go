package file

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Place is a document in the directory.
type Place struct {
	// File is the path within the directory, with slashes.
	File string
	// Document is the number of the document among the non-empty ones of the file, from
	// 1, and Line is its first line. Both are 0 for the file as a whole.
	Document, Line int
	// Item is the place in a List, as in "items[3]"; empty outside one.
	Item string
}

// String returns the place for people: "shop/web.yaml: document 2 (line 31): items[3]".
func (p Place) String() string {
	out := p.File
	if p.Document > 0 {
		out += fmt.Sprintf(": document %d (line %d)", p.Document, p.Line)
	}
	if p.Item != "" {
		out += ": " + p.Item
	}
	return out
}

// parsed is the content of a file. It depends neither on other files nor on the past.
type parsed struct {
	objects []sound
	broken  []broken
	cut     bool
}

// sound is a document without a fault.
type sound struct {
	Place
	object *config.Config
}

// broken is a document with faults.
type broken struct {
	Place
	object  string // Key.String, as far as known
	message string
}

// names says whether one of the broken documents is of the object (a Key.String).
func (p *parsed) names(object string) bool {
	return slices.ContainsFunc(p.broken, func(b broken) bool { return b.object == object })
}

// block is the size at multiples of which a full disk cuts off files.
const block = 4096

// parse reads the documents of a file.
func (c *Cache) parse(path string, data []byte) *parsed {
	out := &parsed{cut: len(data) > 0 && len(data)%block == 0 && data[len(data)-1] != '\n'}
	documents, err := config.DecodeEach(path, data, c.o.Schemas.Type)
	for _, d := range documents {
		place := Place{File: path, Document: d.Index, Line: d.Line, Item: d.Item}
		if faults := c.complete(d.Config); len(faults) > 0 {
			out.fault(place, d.Config.Key().String(), strings.Join(faults, "; "))
			continue
		}
		if err := Stamp(d.Config, c.o.Domain); err != nil {
			out.fault(place, d.Config.Key().String(), err.Error())
			continue
		}
		out.objects = append(out.objects, sound{place, d.Config})
	}
	for _, err := range config.Faults(err) {
		var fault *config.DecodeError
		if !errors.As(err, &fault) {
			fault = &config.DecodeError{Message: err.Error()}
		}
		place := Place{File: path, Document: fault.Index, Line: fault.Line, Item: fault.Item}
		out.fault(place, c.qualifiedName(fault.Object), join(fault.Field, fault.Message))
	}
	return out
}

func (p *parsed) fault(at Place, object, message string) {
	if n := len(p.broken); n > 0 && p.broken[n-1].Place == at {
		p.broken[n-1].message += "; " + message
		return
	}
	p.broken = append(p.broken, broken{at, object, message})
}

// qualifiedName adds the default namespace to the name of an object in a fault.
func (c *Cache) qualifiedName(object string) string {
	if kind, name, ok := strings.Cut(object, "/"); ok && !strings.Contains(name, "/") {
		return kind + "/" + c.o.Namespace + "/" + name
	}
	return object
}

// complete fills in the namespace and returns the faults of an object.
func (c *Cache) complete(object *config.Config) (faults []string) {
	kind := c.o.Schemas.Kind(object.GroupVersionKind)
	if object.Namespace == "" && !kind.ClusterScoped {
		object.Namespace = c.o.Namespace
	}
	if why := ofStoreAlone(kind); why != "" {
		return []string{"is taken from the store alone, which " + why + ": portolan apply -f FILE"}
	}
	_, err := kind.Validate(object)
	for _, err := range config.Faults(err) {
		faults = append(faults, err.Error())
	}
	if len(faults) > 0 {
		return faults
	}
	if object.CreationTimestamp.After(time.Now()) {
		faults = append(faults, "metadata.creationTimestamp: is in the future: leave it out")
	}
	return faults
}

// ofStoreAlone says what the store does with a kind that no directory may have; "" for other kinds.
func ofStoreAlone(kind *schema.Schema) string {
	switch {
	case kind.Codec.Veiled():
		return "seals it"
	case kind.Internal:
		return "says who may come in"
	}
	return ""
}

func join(field, message string) string {
	return (&schema.FieldError{Field: field, Message: message}).Error()
}

// uids is the UUID name space of the uids of objects in files.
var uids = uuid.MustParse("3f1f7f5e-6d0b-4b8e-9c35-0d6a2c1f6a11")

// Stamp sets the other metadata that a store sets. All of them follow from the object,
// so they are the same everywhere. The version is text that is not a number.
func Stamp(object *config.Config, domain string) error {
	if object.CreationTimestamp.IsZero() {
		object.CreationTimestamp = time.Unix(0, 0).UTC()
	}
	object.ResourceVersion, object.Generation, object.Status = "", 1, nil
	object.UID = uuid.NewSHA1(uids, []byte(object.Meta.Key().Path())).String()
	object.Domain = domain
	text, err := config.ToJSON(object, "")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	object.ResourceVersion = "f" + hex.EncodeToString(sum[:10])
	return nil
}
