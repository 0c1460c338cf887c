package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/record"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// Freshness says how new the data of a read must be. The zero Freshness accepts the data
// of the server, which is a moment behind its store.
type Freshness struct {
	// Exact is the one revision at which to read; 0 for none. If the server no longer has
	// the revision the error is an IsResourceExpired, and for a future one an
	// IsBadRequest. With Exact the other fields are ignored.
	Exact int64
	// MinRevision is the oldest acceptable revision, such as the one that a write through
	// any replica returned. If the server does not reach it in a few seconds the error is
	// a NotYet.
	MinRevision int64
	// Consistent requires all writes that were acknowledged before the call; the server
	// asks its store.
	Consistent bool
}

func (f Freshness) add(query url.Values) url.Values {
	if f.Exact > 0 {
		query.Set("resourceVersion", strconv.FormatInt(f.Exact, 10))
		query.Set("resourceVersionMatch", "Exact")
		return query
	}
	if f.MinRevision > 0 {
		query.Set("resourceVersion", strconv.FormatInt(f.MinRevision, 10))
	}
	if f.Consistent {
		query.Set("consistent", "true")
	}
	return query
}

// Client calls one server. It may be used by several goroutines. Objects that it returns lack
// their managed fields, which are for controllers.
type Client struct {
	*call.Client
	freshness Freshness
	warned    func(warnings []string) // nil for nobody
}

// New returns a client of the server at a URL, as call.New does.
func New(server string, o call.Options) (*Client, error) {
	c, err := call.New(server, o)
	if err != nil {
		return nil, err
	}
	return &Client{Client: c}, nil
}

// Fresh returns a client of the same server whose Get and List are as new as f requires.
func (c *Client) Fresh(f Freshness) *Client {
	fresh := *c
	fresh.freshness = f
	return &fresh
}

// Warning returns a client of the same server that passes the warnings of each answer to a Get or a
// List to warned, those of a refusal too. During a Watch it passes all that a List would have, when it
// begins and whenever they change.
func (c *Client) Warning(warned func(warnings []string)) *Client {
	warning := *c
	warning.warned = warned
	return &warning
}

// read reads what is at a path.
func (c *Client) read(ctx context.Context, path string, query url.Values, into any) error {
	_, err := c.Do(ctx, call.Request{Method: http.MethodGet, Path: path, Query: query, Warned: c.warned}, into)
	return err
}

// Resource returns the group, version and plural of a kind in the API, in its canonical
// version.
func Resource(kind *schema.Schema) runtimeschema.GroupVersionResource {
	return runtimeschema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: kind.Plural}
}

// Selection narrows a list; the zero Selection selects all.
type Selection struct {
	// Labels and Fields are in Kubernetes' syntax.
	Labels, Fields string
	// Stored selects the objects of the store only, even those that an object of another
	// source shadows.
	Stored bool
}

func (s Selection) add(query url.Values) url.Values {
	if s.Labels != "" {
		query.Set("labelSelector", s.Labels)
	}
	if s.Fields != "" {
		query.Set("fieldSelector", s.Fields)
	}
	if s.Stored {
		query.Set("source", "store")
	}
	return query
}

// Get returns one object.
func (c *Client) Get(ctx context.Context, resource runtimeschema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	if c.freshness.Exact > 0 {
		return c.getFromList(ctx, resource, namespace, name)
	}
	out := &unstructured.Unstructured{}
	if err := c.read(ctx, objectPath(resource, namespace, name), c.freshness.add(url.Values{}), out); err != nil {
		return nil, err
	}
	out.SetManagedFields(nil)
	return out, nil
}

// getFromList gets one object by a list, which can be of a given revision.
func (c *Client) getFromList(ctx context.Context, resource runtimeschema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	list, err := c.List(ctx, resource, namespace, Selection{Fields: fields.OneTermEqualSelector("metadata.name", name).String()})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, apierrors.NewNotFound(resource.GroupResource(), name)
	}
	return &list.Items[0], nil
}

// List returns the objects of a namespace, or of all (""), at one revision: its
// metadata.resourceVersion.
func (c *Client) List(ctx context.Context, resource runtimeschema.GroupVersionResource, namespace string, s Selection) (*unstructured.UnstructuredList, error) {
	query := s.add(c.freshness.add(url.Values{}))
	out := &unstructured.UnstructuredList{}
	if err := c.read(ctx, objectPath(resource, namespace, ""), query, out); err != nil {
		return nil, err
	}
	for i := range out.Items {
		out.Items[i].SetManagedFields(nil)
	}
	return out, nil
}

// Apply does a batch, all of it or nothing. If it is refused, its faults are the causes
// of the error's status; batch.Index finds the operation of each.
func (c *Client) Apply(ctx context.Context, b batch.Batch) (*batch.Result, error) {
	return c.post(ctx, b, url.Values{})
}

// Try returns the error or result that Apply would return for the present store, and a
// preview if requested; the server writes nothing. Changes before the real Apply may
// change the result.
func (c *Client) Try(ctx context.Context, b batch.Batch, what effect.Preview) (*batch.Result, error) {
	query := url.Values{"dryRun": {metav1.DryRunAll}, "consistent": {"true"}}
	if what != effect.PreviewNothing {
		query.Set("preview", string(what))
	}
	return c.post(ctx, b, query)
}

func (c *Client) post(ctx context.Context, b batch.Batch, query url.Values) (*batch.Result, error) {
	if b.FieldManager != "" {
		query.Set("fieldManager", b.FieldManager)
	}
	text, err := b.JSON()
	if err != nil {
		return nil, err
	}
	out := &batch.Result{}
	if _, err := c.Do(ctx, call.Request{Method: http.MethodPost, Path: batch.Path, Query: query, Body: text}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// PutStatus sets the status of the object of the given object's name to that of the given one. The
// resourceVersion is the precondition. It returns the object as it is then, or as a dry run would
// leave it.
func (c *Client) PutStatus(ctx context.Context, resource runtimeschema.GroupVersionResource, object *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, error) {
	query := url.Values{}
	if dryRun {
		query.Set("dryRun", metav1.DryRunAll)
	}
	out := &unstructured.Unstructured{}
	path := objectPath(resource, object.GetNamespace(), object.GetName()) + "/status"
	if _, err := c.Do(ctx, call.Request{Method: http.MethodPut, Path: path, Query: query, Body: object.Object}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Delete removes an object. A resourceVersion that is not empty must be the stored one.
// Delete returns the server's warnings.
func (c *Client) Delete(ctx context.Context, resource runtimeschema.GroupVersionResource, namespace, name, resourceVersion string) (warnings []string, err error) {
	call := call.Request{Method: http.MethodDelete, Path: objectPath(resource, namespace, name)}
	if resourceVersion != "" {
		call.Body = metav1.DeleteOptions{
			TypeMeta:      metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
			Preconditions: &metav1.Preconditions{ResourceVersion: &resourceVersion},
		}
	}
	return c.Do(ctx, call, nil)
}

// Records returns one page of the history. If its metadata.continue is set, pass that
// as the Until of the next page.
func (c *Client) Records(ctx context.Context, q record.Query) (*record.List, error) {
	out := &record.List{}
	_, err := c.Do(ctx, call.Request{Method: http.MethodGet, Path: record.Path, Query: q.Values()}, out)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Findings returns the findings about the objects of a namespace, or of all if it is
// empty: the present ones, or with operations those after them.
func (c *Client) Findings(ctx context.Context, namespace string, operations []batch.Operation) (*finding.List, error) {
	out := &finding.List{}
	call := call.Request{Method: http.MethodGet, Path: finding.Path, Query: url.Values{}}
	if namespace != "" {
		call.Query.Set("namespace", namespace)
	}
	if len(operations) > 0 {
		call.Method, call.Body = http.MethodPost, batch.New(operations...)
	}
	if _, err := c.Do(ctx, call, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Namespaces returns the names of the namespaces that have objects.
func (c *Client) Namespaces(ctx context.Context) ([]string, error) {
	var list metav1.PartialObjectMetadataList
	if err := c.JSON(ctx, "/api/v1/namespaces", &list); err != nil {
		return nil, err
	}
	out := make([]string, len(list.Items))
	for i := range list.Items {
		out[i] = list.Items[i].Name
	}
	return out, nil
}

// objectPath returns the path of an object, or of all if name is empty.
func objectPath(resource runtimeschema.GroupVersionResource, namespace, name string) string {
	path := "/apis/" + resource.Group + "/" + resource.Version
	if resource.Group == "" {
		path = "/api/" + resource.Version
	}
	if namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	path += "/" + resource.Resource
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}
