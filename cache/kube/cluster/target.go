package cluster

import (
	"context"
	"errors"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

func (t *target) list(ctx context.Context, c *client, o metav1.ListOptions) (runtime.Object, error) {
	o.LabelSelector, o.FieldSelector = t.labels, t.fields
	if !t.typed() {
		list, err := t.plain(c).List(ctx, o)
		if err != nil {
			return nil, err
		}
		return list, nil
	}
	return c.typed.Get().AbsPath(t.path()...).SpecificallyVersionedParams(&o, metav1.ParameterCodec, metav1.SchemeGroupVersion).Do(ctx).Get()
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
