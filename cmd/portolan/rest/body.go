package rest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/side"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// readBody reads the body of a write: JSON, even without a Content-Type, YAML, or a protobuf
// message of Kubernetes, which becomes JSON. A page
// of another site cannot make a browser post these, unless guard refuses the request for
// its origin.
func (b *budget) readBody(c *call) (body []byte, isYAML bool, err error) {
	body, err = b.readRaw(c)
	if err != nil || len(body) == 0 && c.r.Method == http.MethodDelete {
		return nil, false, err
	}
	contentType := c.r.Header.Get("Content-Type")
	switch media, _, _ := mime.ParseMediaType(contentType); {
	case contentType == "" || media == "application/json":
	case media == "application/yaml":
		isYAML = true
	case media == runtime.ContentTypeProtobuf:
		if body, err = fromProtobuf(c, body); err != nil {
			return nil, false, err
		}
	default:
		return nil, false, refusal.New(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			fmt.Sprintf("Content-Type %q is not accepted: send application/json or application/yaml", contentType))
	}
	return body, isYAML, b.decode(c, body, isYAML)
}

func (b *budget) readRaw(c *call) (body []byte, err error) {
	if encoding := c.r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, refusal.New(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			fmt.Sprintf("Content-Encoding %q is not accepted: send the body as it is", encoding))
	}
	body, err = b.readAll(c)
	var tooLarge *http.MaxBytesError
	var known *apierrors.StatusError
	switch {
	case errors.As(err, &tooLarge):
		return nil, refusal.New(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("the request body is larger than %d KiB: send the objects in several requests", tooLarge.Limit>>10))
	case errors.As(err, &known):
		return nil, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, refusal.New(http.StatusRequestTimeout, metav1.StatusReasonTimeout,
			fmt.Sprintf("the request body came too slowly: send at least %d KiB a second", bodyRate>>10))
	case err != nil:
		return nil, refusal.BadRequest(fmt.Sprintf("the request body cannot be read: %v", err))
	}
	return body, nil
}

// readJSON reads a body that is not an object of the mesh, as JSON.
func (b *budget) readJSON(c *call, what string) ([]byte, error) {
	body, isYAML, err := b.readBody(c)
	if err != nil || !isYAML {
		return body, err
	}
	if body, err = config.YAMLToJSON(body); err != nil {
		return nil, refusal.BadRequest(fmt.Sprintf("%s cannot be read: %v", what, err))
	}
	return body, nil
}

// readObject reads and validates the object of a create or a replace, and adds the
// warnings to the answer. An object to be created may get a generated name; no other
// object may have a GenerateName. readObject drops the fields that only the server sets,
// except the uid.
func (s *Server) readObject(c *call, verb storage.Verb) (*config.Config, error) {
	body, isYAML, err := s.budget.readBody(c)
	if err != nil {
		return nil, err
	}
	if !isYAML {
		body = withKind(c, body)
	}
	object, warnings, err := s.readText(c, body, isYAML, verb)
	warn(c.w, warnings)
	return object, err
}

// withKind returns an object in JSON with the kind and the version of the path where it names
// none. Kubernetes does so for its own kinds, and its client in Python relies on that.
func withKind(c *call, body []byte) []byte {
	if !side.Types.Recognizes(c.gvk()) {
		return body
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(body, &object) != nil || object == nil || object["kind"] != nil && object["apiVersion"] != nil {
		return body // what is wrong with it is said by who reads it
	}
	version, kind := c.gvk().ToAPIVersionAndKind()
	for name, value := range map[string]string{"apiVersion": version, "kind": kind} {
		if object[name] == nil {
			object[name], _ = json.Marshal(value) // of a string
		}
	}
	out, err := json.Marshal(object)
	if err != nil {
		return body
	}
	return out
}

// readText is readObject for a text that is not the body of the request. It returns the
// warnings.
func (s *Server) readText(c *call, body []byte, isYAML bool, verb storage.Verb) (*config.Config, []string, error) {
	details := metav1.StatusDetails{Name: c.name, Group: c.schema.Group, Kind: c.schema.Kind}
	var found faults
	object, err := s.decode(body, isYAML)
	if err != nil {
		name := "the object"
		found.decode(err, func(object, field, message string) (string, string) {
			if object != "" {
				name = object
			}
			return field, message
		})
		if parts := strings.Split(name, "/"); c.name == "" && len(parts) > 1 {
			details.Name = parts[len(parts)-1]
		}
		what := " is invalid"
		if found.unreadable {
			what = " cannot be read"
		}
		return nil, nil, found.error(name+what, details)
	}
	fitToPath(c, object, &found)
	checkManagedFields(object, found.mayNotBe)
	if c.name == "" && object.Name == "" {
		object.Name = generatedName(object.GenerateName)
	} else {
		object.GenerateName = ""
	}
	details.Name = object.Name
	warnings, err := c.schema.Validate(object)
	eachFieldFault(err, found.mayNotBe)
	if err := found.error(object.Key().String()+" is invalid", details); err != nil {
		return nil, nil, err
	}
	op, err := s.granted(c, storage.Op{Verb: verb, Config: object})
	if err != nil {
		return nil, nil, err
	}
	advice := s.advise(c.r.Context(), []storage.Op{{Verb: storage.Put, Config: op.Config}})
	return op.Config, allWarnings(warnings, advice[0]), nil
}

// generatedName returns a name that begins with a prefix, as Kubernetes generates them;
// empty for an empty prefix.
func generatedName(prefix string) string {
	const most, random = 63, 5
	if prefix == "" {
		return ""
	}
	return prefix[:min(len(prefix), most-random)] + rand.String(random)
}

// allWarnings joins the warnings of an object's schema and of the advisor.
func allWarnings(alone []schema.Warning, advice []finding.Advice) []string {
	out := make([]string, 0, len(alone)+len(advice))
	for _, w := range alone {
		out = append(out, w.String())
	}
	for _, a := range advice {
		out = append(out, a.Text)
	}
	return out
}

// adviceWait bounds how long a write waits for an advisor that is behind.
const adviceWait = 250 * time.Millisecond

func (s *Server) advise(ctx context.Context, ops []storage.Op) [][]finding.Advice {
	if s.advisor == nil {
		return make([][]finding.Advice, len(ops))
	}
	ctx, cancel := context.WithTimeout(ctx, adviceWait)
	defer cancel()
	_ = s.advisor.Await(ctx, s.cache.Snapshot().Changed()) // without waiting longer, the advisor knows a little less
	return s.advisor.Advise(s.foreseen(ctx, ops))
}

// fitToPath checks that the path names this object, and sets the namespace of the
// object.
func fitToPath(c *call, object *config.Config, found *faults) {
	if object.Group != c.schema.Group || object.Kind != c.schema.Kind {
		found.cannotRead("kind", fmt.Sprintf("is %s of %s, and the path takes %s of %s", object.Kind, groupName(object.Group), c.schema.Kind, groupName(c.schema.Group)))
	}
	if object.Namespace == "" {
		object.Namespace = c.namespace
	}
	if object.Namespace != c.namespace {
		found.cannotRead("metadata.namespace", fmt.Sprintf("is %q, and the path says %q: make them equal", object.Namespace, c.namespace))
	}
	if c.name == "" && object.ResourceVersion != "" {
		found.cannotRead("metadata.resourceVersion", "must not be set on an object to be created: leave it out, or replace the object that exists")
	}
	if c.name != "" && object.Name != "" && object.Name != c.name {
		found.cannotRead("metadata.name", fmt.Sprintf("is %q, and the path says %q: make them equal", object.Name, c.name))
	}
}

// groupName returns a group for people.
func groupName(group string) string {
	if group == "" {
		return "the core group"
	}
	return group
}

// decode reads one object. It drops the fields that only the server sets, except the
// uid, and in JSON the creation time.
func (s *Server) decode(body []byte, isYAML bool) (*config.Config, error) {
	if !isYAML {
		object, err := s.decodeReported(body)
		if err != nil {
			return nil, err
		}
		object.Status = nil
		return object, nil
	}
	documents, err := config.Decode("", body, s.schemas.Type)
	if err != nil {
		return nil, err
	}
	if len(documents) != 1 || documents[0].Item != "" {
		return nil, fmt.Errorf("the body must hold one object, and holds %d: POST several as one batch to /apis/portolan.io/v1/batches", len(documents))
	}
	var uid struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	text, err := config.YAMLToJSON(body)
	if err == nil {
		err = json.Unmarshal(text, &uid)
	}
	if err != nil {
		return nil, err
	}
	documents[0].Config.UID = uid.Metadata.UID
	withoutOrigin(documents[0].Config)
	return documents[0].Config, nil
}

// decodeReported is decode for JSON, and keeps the status.
func (s *Server) decodeReported(body []byte) (*config.Config, error) {
	object, err := config.FromJSON(body, s.schemas.Type)
	if err != nil {
		return nil, err
	}
	object.Generation = 0
	withoutOrigin(object)
	return object, nil
}
