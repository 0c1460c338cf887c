package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
)

// target is what a Follow requests.
type target struct {
	resource       schema.GroupVersionResource
	kind           string
	namespace      string
	labels, fields string
}

func (t *target) typed() bool { return kinds().IsVersionRegistered(t.resource.GroupVersion()) }

// path returns the path of the resource.
func (t *target) path() []string {
	path := []string{"/apis", t.resource.Group, t.resource.Version}
	if t.resource.Group == "" {
		path = []string{"/api", t.resource.Version}
	}
	if t.namespace != "" {
		path = append(path, "namespaces", t.namespace)
	}
	return append(path, t.resource.Resource)
}

func (t *target) plain(c *client) dynamic.ResourceInterface {
	if t.namespace != "" {
		return c.dynamic.Resource(t.resource).Namespace(t.namespace)
	}
	return c.dynamic.Resource(t.resource)
}

// list requests a list, or a page of one, and passes its objects on one after the other.
func (t *target) list(ctx context.Context, c *client, o metav1.ListOptions, each func(Object)) (metav1.ListInterface, error) {
	o.LabelSelector, o.FieldSelector = t.labels, t.fields
	if !t.typed() {
		return t.listDocuments(ctx, c, o, each)
	}
	list, err := c.typed.Get().AbsPath(t.path()...).SpecificallyVersionedParams(&o, metav1.ParameterCodec, metav1.SchemeGroupVersion).Do(ctx).Get()
	if err != nil {
		return nil, err
	}
	from, err := meta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	return from, meta.EachListItem(list, func(o runtime.Object) error {
		if object, ok := o.(Object); ok {
			each(object)
		}
		return nil
	})
}

// listDocuments lists objects without Go types. It decodes one when its turn comes: decoded, it takes
// many times the memory of its text.
func (t *target) listDocuments(ctx context.Context, c *client, o metav1.ListOptions, each func(Object)) (metav1.ListInterface, error) {
	result := c.plain.Get().AbsPath(t.path()...).SpecificallyVersionedParams(&o, metav1.ParameterCodec, metav1.SchemeGroupVersion).Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	body, err := result.Raw()
	if err != nil {
		return nil, err
	}
	list := struct {
		Kind  string            `json:"kind"`
		Meta  metav1.ListMeta   `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}{}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, fmt.Errorf("the list of %s cannot be read: %w", t.resource.Resource, err)
	}
	if !strings.HasSuffix(list.Kind, "List") {
		return nil, fmt.Errorf("the list of %s cannot be read: it is of kind %q", t.resource.Resource, list.Kind)
	}
	for i, text := range list.Items {
		object := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(text, &object.Object); err != nil {
			return nil, fmt.Errorf("items[%d] of the list of %s cannot be read: %w", i, t.resource.Resource, err)
		}
		list.Items[i] = nil
		if object.GetKind() == "" && object.GetAPIVersion() == "" { // as API servers may leave it out in lists
			object.SetGroupVersionKind(t.resource.GroupVersion().WithKind(strings.TrimSuffix(list.Kind, "List")))
		}
		each(object)
	}
	return &list.Meta, nil
}

// errClosed is the error of a watch without an answer.
var errClosed = errors.New("the cluster closed the connection, or did not answer in time")

// watch begins a watch. client-go takes a connection that ended before the answer for a watch that
// is over, as behind a load balancer whose API servers are all down; here it is an error.
func (t *target) watch(ctx context.Context, c *client, o metav1.ListOptions) (watch.Interface, error) {
	w, err := t.begin(ctx, c, o)
	if err == nil && reflect.TypeOf(w) == reflect.TypeOf(watch.NewEmptyWatch()) {
		return nil, errClosed
	}
	return w, err
}

func (t *target) begin(ctx context.Context, c *client, o metav1.ListOptions) (watch.Interface, error) {
	o.LabelSelector, o.FieldSelector = t.labels, t.fields
	if !t.typed() {
		return t.plain(c).Watch(ctx, o)
	}
	o.Watch = true
	return c.typed.Get().AbsPath(t.path()...).SpecificallyVersionedParams(&o, metav1.ParameterCodec, metav1.SchemeGroupVersion).Watch(ctx)
}
