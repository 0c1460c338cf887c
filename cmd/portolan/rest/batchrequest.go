package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// maxOperations bounds the operations of a batch that are read. Stores have lower
// limits, and report them.
const maxOperations = 100_000

var errTooMany = fmt.Errorf("the batch has more than %d operations: apply it in parts", maxOperations)

// operations stops reading if there are too many.
type operations []batch.Operation

// UnmarshalJSON implements json.Unmarshaler.
func (o *operations) UnmarshalJSON(text []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if first, err := decoder.Token(); err != nil || first != json.Delim('[') {
		return errors.Join(err, errors.New("operations: must be a list"))
	}
	for decoder.More() {
		if len(*o) == maxOperations {
			return errTooMany
		}
		var operation batch.Operation
		if err := decoder.Decode(&operation); err != nil {
			return fmt.Errorf("%s: %w", batch.Field(len(*o), ""), err)
		}
		*o = append(*o, operation)
	}
	return nil
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
