package rest

import (
	"fmt"
	"net/http"

	"google.golang.org/protobuf/types/known/anypb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/fieldmanager"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Managed fields. An object has some from its first server-side apply on (patch.go). Every later
// write keeps them true: the store asks for them in its transaction, with the object that it
// has (storage.Op.Managed).

// manager returns the name of who writes by the call.
func (c *call) manager() string {
	return fieldmanager.Name(c.query.Get("fieldManager"), c.r.UserAgent())
}

// checkManager reports a name of the writer that no managed field may have.
func (c *call) checkManager(found *faults) {
	if c.r.Method == http.MethodGet || c.r.Method == http.MethodHead {
		return // a read ignores the parameter
	}
	for _, fault := range validation.ValidateFieldManager(c.query.Get("fieldManager"), field.NewPath("fieldManager")) {
		found.mayNotBe(fault.Field, fault.ErrorBody())
	}
}

// checkManagedFields reports names of managers in an object of a request that nobody may have. As in
// Kubernetes, managed fields that cannot be read count as none.
func checkManagedFields(object *config.Config, report func(field, message string)) {
	for i, entry := range object.ManagedFields {
		at := field.NewPath("metadata", "managedFields").Index(i).Child("manager")
		for _, fault := range validation.ValidateFieldManager(entry.Manager, at) {
			report(fault.Field, fault.ErrorBody())
		}
	}
}

// managing returns what a write by the call makes of managed fields. sent are those in the
// request.
func (s *Server) managing(c *call, sent []metav1.ManagedFieldsEntry) func(stored, written *config.Config) ([]metav1.ManagedFieldsEntry, error) {
	return func(stored, written *config.Config) ([]metav1.ManagedFieldsEntry, error) {
		live, err := s.unstructured(stored, c.version)
		if err != nil {
			return nil, err
		}
		if sent != nil && len(sent) == 0 { // an empty list would get lost on the way
			sent = []metav1.ManagedFieldsEntry{{}}
		}
		object := *written
		object.ManagedFields = sent
		next, err := s.unstructured(&object, c.version)
		if err != nil {
			return nil, err
		}
		out, err := s.managers.Update(live, next, c.manager())
		if err != nil { // nobody's write fails because of who manages what
			s.logger.Error("managed fields stay as they are", "object", stored.Key(), "err", err)
			return stored.ManagedFields, nil
		}
		if out == nil {
			out = []metav1.ManagedFieldsEntry{} // none any more, instead of those of before
		}
		return out, nil
	}
}

// unmanaged refuses a write that takes an object as a whole, and that was made for one without
// managed fields.
func unmanaged(stored, written *config.Config) ([]metav1.ManagedFieldsEntry, error) {
	return nil, fmt.Errorf("%w: %s was applied server-side meanwhile: try again", storage.ErrConflict, written.Key())
}

// unstructured returns an object as documents show it, under a version of its kind; an empty
// version stands for the first.
func (s *Server) unstructured(object *config.Config, version string) (*unstructured.Unstructured, error) {
	kind := s.schemas.Kind(object.GroupVersionKind)
	if version == "" {
		version = kind.Versions[0]
	}
	if stored, encoded := object.Spec.(*anypb.Any); encoded {
		spec, err := kind.Codec.Unmarshal(stored)
		if err != nil {
			return nil, err
		}
		decoded := *object
		decoded.Spec = spec
		decoded.SetWritten(object.AsWritten())
		object = &decoded
	}
	return unstructuredOf(config.Shown(object), version)
}

// unstructuredOf returns an object as it is.
func unstructuredOf(object *config.Config, version string) (*unstructured.Unstructured, error) {
	text, err := config.ToJSON(object, version)
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	return out, out.UnmarshalJSON(text)
}
