package objects

import (
	"encoding/json"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/generate/policy"
)

// typed returns the parts of an object that tables show, with a decoded spec. It drops what
// only a newer server knows.
func typed(kind *schema.Schema, object *unstructured.Unstructured, spec any) *config.Config {
	return &config.Config{
		Meta: config.Meta{
			GroupVersionKind: kind.GroupVersionKind, Namespace: object.GetNamespace(), Name: object.GetName(),
			Labels: object.GetLabels(), Annotations: object.GetAnnotations(),
			ResourceVersion: object.GetResourceVersion(), CreationTimestamp: object.GetCreationTimestamp().Time,
		},
		Spec: spec, Status: statusOf(kind, object),
	}
}

// statusOf returns nil for an object without a status, and for a status of another form.
func statusOf(kind *schema.Schema, object *unstructured.Unstructured) proto.Message {
	content, ok := object.Object["status"]
	if !ok {
		return nil
	}
	status, ok := schema.NewStatus(kind.GroupVersionKind).(proto.Message)
	if !ok {
		return nil
	}
	text, err := json.Marshal(content)
	if err != nil || (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, status) != nil {
		return nil
	}
	return status
}

// condition is one condition in an object's status.
type condition map[string]any

// text returns the text of a field, on one line.
func (c condition) text(field string) string {
	s, _ := c[field].(string)
	return strings.Join(strings.Fields(s), " ")
}

func conditionsOf(object *unstructured.Unstructured) (out []condition) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, one := range conditions {
		c, _ := one.(map[string]any)
		out = append(out, c)
	}
	return out
}

// isDryRun reports whether an object is an AuthorizationPolicy that is watched and not enforced.
func isDryRun(object *unstructured.Unstructured) bool {
	return object.GetKind() == schema.AuthorizationPolicy.Kind && policy.DryRun(&config.Config{Meta: config.Meta{Annotations: object.GetAnnotations()}})
}
