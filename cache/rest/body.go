package rest

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// readBody reads the body of a write. A body must say that it is JSON or YAML:
// what a page of another site can make a browser post says neither.
func readBody(c *call) (body []byte, isYAML bool, err error) {
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Now().Add(bodyTimeout))
	body, err = io.ReadAll(http.MaxBytesReader(c.w, c.r.Body, maxBody))
	_ = http.NewResponseController(c.w).SetReadDeadline(time.Time{})
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, false, refuse(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge,
			fmt.Sprintf("the request body is larger than %d MiB: send the objects in several requests", maxBody>>20))
	case err != nil:
		return nil, false, badRequest(fmt.Sprintf("the request body cannot be read: %v", err))
	case len(body) == 0 && c.r.Method == http.MethodDelete:
		return nil, false, nil
	}
	contentType := c.r.Header.Get("Content-Type")
	switch media, _, _ := mime.ParseMediaType(contentType); media {
	case "application/json":
		return body, false, nil
	case "application/yaml":
		return body, true, nil
	default:
		return nil, false, refuse(http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType,
			fmt.Sprintf("Content-Type %q is not accepted: send application/json or application/yaml", contentType))
	}
}

// readObject reads and validates the object of a create or a replace, and puts
// the warnings into the answer. What only the server sets is left out of it,
// except the uid.
func (s *Server) readObject(c *call) (*config.Config, error) {
	body, isYAML, err := readBody(c)
	if err != nil {
		return nil, err
	}
	details := metav1.StatusDetails{Name: c.name, Group: c.schema.Group, Kind: c.schema.Kind}
	var found faults
	object, err := s.decode(body, isYAML)
	if err != nil {
		name := "the object"
		eachDecodeFault(err, func(object, field, message string) {
			if object != "" {
				name = object
			}
			found.cannotRead(field, message)
		})
		return nil, found.error(name+" cannot be read", details)
	}
	fitToPath(c, object, &found)
	details.Name = object.Name
	warnings, err := c.schema.Validate(object)
	eachFieldFault(err, found.mayNotBe)
	if err := found.error(object.Key().String()+" is invalid", details); err != nil {
		return nil, err
	}
	warn(c.w, slices.Concat(warnings, s.advise([]storage.Op{{Verb: storage.Put, Config: object}})[0]))
	return object, nil
}

// advise returns what the advisor says of each operation.
func (s *Server) advise(ops []storage.Op) [][]string {
	if s.advisor == nil {
		return make([][]string, len(ops))
	}
	return s.advisor.Advise(ops)
}

// fitToPath checks that the object is the one that the path names, and fills
// in its namespace.
func fitToPath(c *call, object *config.Config, found *faults) {
	if object.Group != c.schema.Group || object.Kind != c.schema.Kind {
		found.cannotRead("kind", fmt.Sprintf("is %s of %s, and the path takes %s of %s", object.Kind, object.Group, c.schema.Kind, c.schema.Group))
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

// decode reads one object. What only the server sets is left out of it, except
// the uid, and of JSON the creation time.
func (s *Server) decode(body []byte, isYAML bool) (*config.Config, error) {
	if !isYAML {
		object, err := config.FromJSON(body, s.schemas.Type)
		if err != nil {
			return nil, err
		}
		object.Generation, object.Status = 0, nil
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
	if err := yaml.Unmarshal(body, &uid); err != nil {
		return nil, err
	}
	documents[0].Config.UID = uid.Metadata.UID
	return documents[0].Config, nil
}
