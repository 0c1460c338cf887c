package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"google.golang.org/protobuf/proto"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/cores"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// maxOperations bounds the operations of a batch that are read. Stores have lower
// limits, and report them.
const maxOperations = 100_000

var errTooMany = fmt.Errorf("the batch has more than %d operations: apply it in parts", maxOperations)

// operations stops reading if there are too many.
type operations []batch.Operation

// UnmarshalJSON implements json.Unmarshaler.
func (o *operations) UnmarshalJSON(text []byte) error {
	elements, isList := config.Elements(bytes.Clone(text))
	switch {
	case !isList:
		return errors.New("operations: must be a list")
	case len(elements) > maxOperations:
		return errTooMany
	}
	*o = make(operations, len(elements))
	errs := make([]error, len(elements))
	cores.Each(len(elements), func(i int) { (*o)[i], errs[i] = operationOf(elements[i]) })
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("%s: %w", batch.Field(i, ""), err)
		}
	}
	return nil
}

// operationOf reads an operation. One with no more than a verb and an object, as most are, is
// split and not copied.
func operationOf(text json.RawMessage) (out batch.Operation, err error) {
	for name, value := range config.Members(text) {
		switch {
		case name == "object":
			out.Object = value
			continue
		case name == "verb" && json.Unmarshal(value, &out.Verb) == nil:
			continue
		}
		out = batch.Operation{}
		return out, decodeStrict(text, &out)
	}
	if out.Object == nil {
		return out, decodeStrict(text, &out)
	}
	return out, nil
}

// request is a batch.Batch as it is read.
type request struct {
	metav1.TypeMeta `json:",inline"`
	Message         string     `json:"message"`
	Strict          string     `json:"strict"`
	Force           bool       `json:"force"`
	ServerSide      bool       `json:"serverSide"`
	Operations      operations `json:"operations"`
}

// reading is what was read of the object of an operation.
type reading struct {
	object   *config.Config
	status   proto.Message // that the object came with, nil for none
	err      error         // why it cannot be read
	warnings []schema.Warning
	faults   error // of the object, if it can be read
}

// readOperation reads the object of an operation, and judges it by its schema.
func (s *Server) readOperation(in batch.Operation) (out reading) {
	if _, known := verbs[in.Verb]; !known || in.Verb == batch.Delete || len(in.Object) == 0 {
		return reading{}
	}
	if out.object, out.err = s.decodeReported(in.Object); out.err != nil {
		return out
	}
	out.status, out.object.Status, out.object.UID = out.object.Status, nil, ""
	out.warnings, out.faults = s.schemas.Kind(out.object.GroupVersionKind).Validate(out.object)
	return out
}

func (s *Server) readBatch(c *call) (*request, error) {
	body, err := s.budget.readJSON(c, "the batch")
	if err != nil {
		return nil, err
	}
	var request request
	switch err := decodeStrict(body, &request); {
	case errors.Is(err, errTooMany):
		return nil, refusal.New(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, err.Error())
	case err != nil:
		return nil, refusal.BadRequest(fmt.Sprintf("the batch cannot be read: %v", err))
	}
	switch {
	case request.APIVersion != batch.APIVersion || request.Kind != batch.Kind:
		return nil, refusal.BadRequest(fmt.Sprintf("the body is a %q of apiVersion %q: send kind %s of apiVersion %s",
			request.Kind, request.APIVersion, batch.Kind, batch.APIVersion))
	case !slices.Contains([]string{"", "error", "warning"}, request.Strict):
		return nil, refusal.BadRequest(fmt.Sprintf("strict: %q is neither error nor warning: it refuses the batch because of warnings of that severity and worse", request.Strict))
	case len(request.Operations) == 0:
		return nil, refusal.BadRequest("operations: is empty: a batch needs at least one")
	}
	if faults := validation.ValidateFieldManager(c.query.Get("fieldManager"), field.NewPath("fieldManager")); len(faults) > 0 {
		return nil, refusal.Invalid("the parameters of the URL cannot be taken: " + faults.ToAggregate().Error())
	}
	return &request, nil
}
