package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/portolan-mesh/portolan/cache/rest/batch"
	"github.com/portolan-mesh/portolan/cache/rest/record"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Options configure a Client. The zero Options are ready to use.
type Options struct {
	// HTTP makes the calls; nil means one of the client's own with Go's defaults.
	HTTP *http.Client
	// UserAgent names the program to the server.
	UserAgent string
}

// Client calls one server. It may be used by several goroutines.
type Client struct {
	server    *url.URL
	http      *http.Client
	userAgent string
	freshness Freshness
}

// Freshness is how new what is read must be. The zero Freshness is content with
// what the server has, which is a moment behind its store.
type Freshness struct {
	// Exact is the one revision at which to read, 0 for none: as it was then. The
	// error where the server knows it no longer is an IsResourceExpired, that of
	// one in the future an IsBadRequest. The other fields are of no account then.
	Exact int64
	// MinRevision is a revision that the answer must not be older than, such as
	// one that a write returned, also through another replica. The error of a
	// server that does not get there in a few seconds is NotYet.
	MinRevision int64
	// Consistent asks for all that was acknowledged before the call; the server
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

// New returns a client of the server at a URL such as http://127.0.0.1:15080.
// Host and port alone mean http. It does not call the server.
func New(server string, o Options) (*Client, error) {
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	base, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("server %q is not a URL: %w", server, err)
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("server %q is not a URL such as http://127.0.0.1:15080", server)
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	if o.HTTP == nil {
		o.HTTP = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	if o.UserAgent == "" {
		o.UserAgent = "portolan"
	}
	return &Client{server: base, http: o.HTTP, userAgent: o.UserAgent}, nil
}

// Fresh returns a client of the same server whose Get and List are as new as f
// says.
func (c *Client) Fresh(f Freshness) *Client {
	fresh := *c
	fresh.freshness = f
	return &fresh
}

// Server is the URL of the server.
func (c *Client) Server() string { return c.server.String() }

// Close gives up connections that are idle.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Resource is the path of a kind's objects in the API, in its canonical
// version.
func Resource(kind *schema.Schema) runtimeschema.GroupVersionResource {
	return runtimeschema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: kind.Plural}
}

// Selection narrows a list. Both are in Kubernetes' syntax; empty selects all.
type Selection struct {
	Labels, Fields string
}

// Get returns one object.
func (c *Client) Get(ctx context.Context, resource runtimeschema.GroupVersionResource, namespace, name string) (*unstructured.Unstructured, error) {
	if c.freshness.Exact > 0 {
		return c.getFromList(ctx, resource, namespace, name)
	}
	out := &unstructured.Unstructured{}
	query := c.freshness.add(url.Values{})
	_, err := c.do(ctx, request{method: http.MethodGet, path: objectPath(resource, namespace, name), query: query}, out)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// getFromList gets one object as a list, which can be of a revision.
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

// List returns the objects of a namespace, or of all (""), as of one revision:
// that of its metadata.resourceVersion.
func (c *Client) List(ctx context.Context, resource runtimeschema.GroupVersionResource, namespace string, s Selection) (*unstructured.UnstructuredList, error) {
	query := c.freshness.add(url.Values{})
	if s.Labels != "" {
		query.Set("labelSelector", s.Labels)
	}
	if s.Fields != "" {
		query.Set("fieldSelector", s.Fields)
	}
	out := &unstructured.UnstructuredList{}
	_, err := c.do(ctx, request{method: http.MethodGet, path: objectPath(resource, namespace, ""), query: query}, out)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Apply does a batch, all of it or nothing. The faults of a refused one are the
// causes of the error's status; batch.Index finds the operation of each.
func (c *Client) Apply(ctx context.Context, b batch.Batch) (*batch.Result, error) {
	out := &batch.Result{}
	if _, err := c.do(ctx, request{method: http.MethodPost, path: batch.Path, body: b}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Try returns what Apply would, error or result, as the store is now; the server
// writes nothing. What changes before the batch is applied may change it.
func (c *Client) Try(ctx context.Context, b batch.Batch) (*batch.Result, error) {
	out := &batch.Result{}
	query := url.Values{"dryRun": {metav1.DryRunAll}, "consistent": {"true"}}
	if _, err := c.do(ctx, request{method: http.MethodPost, path: batch.Path, query: query, body: b}, out); err != nil {
		return nil, err
	}
	return out, nil
}

// Delete removes an object; a resourceVersion that is not empty must be the
// stored one. It returns the server's warnings.
func (c *Client) Delete(ctx context.Context, resource runtimeschema.GroupVersionResource, namespace, name, resourceVersion string) (warnings []string, err error) {
	call := request{method: http.MethodDelete, path: objectPath(resource, namespace, name)}
	if resourceVersion != "" {
		call.body = metav1.DeleteOptions{
			TypeMeta:      metav1.TypeMeta{Kind: "DeleteOptions", APIVersion: "v1"},
			Preconditions: &metav1.Preconditions{ResourceVersion: &resourceVersion},
		}
	}
	return c.do(ctx, call, nil)
}

// Records returns one page of the history. Where its metadata.continue is set,
// that is the Until of the next page.
func (c *Client) Records(ctx context.Context, q record.Query) (*record.List, error) {
	out := &record.List{}
	_, err := c.do(ctx, request{method: http.MethodGet, path: record.Path, query: q.Values()}, out)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// JSON reads what the server answers at a path with a query, which may follow
// the path, into a value.
func (c *Client) JSON(ctx context.Context, path string, into any) error {
	path, text, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return fmt.Errorf("query of %s: %w", path, err)
	}
	_, err = c.do(ctx, request{method: http.MethodGet, path: path, query: query}, into)
	return err
}

// objectPath is the path of an object, or of all where name is empty.
func objectPath(resource runtimeschema.GroupVersionResource, namespace, name string) string {
	path := "/apis/" + resource.Group + "/" + resource.Version
	if namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	path += "/" + resource.Resource
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

type request struct {
	method, path string // the path is escaped
	query        url.Values
	body         any // nil sends none
}

// do calls the server and reads its answer.
func (c *Client) do(ctx context.Context, in request, into any) (warnings []string, err error) {
	response, err := c.send(ctx, in)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, c.unreachable(ctx, in, true, err)
	}
	if into != nil {
		if err := json.Unmarshal(body, into); err != nil {
			return nil, c.foreign(in, response, body)
		}
	}
	return warningsOf(response.Header), nil
}

// send calls the server and returns its answer, which is one of success, before
// its body is read.
func (c *Client) send(ctx context.Context, in request) (*http.Response, error) {
	var sent atomic.Bool
	trace := &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}
	r, err := c.request(httptrace.WithClientTrace(ctx, trace), in)
	if err != nil {
		return nil, err
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, c.unreachable(ctx, in, sent.Load(), err)
	}
	if response.StatusCode >= 200 && response.StatusCode <= 299 {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, c.unreachable(ctx, in, sent.Load(), err)
	}
	return nil, c.refused(in, response, body)
}

func (c *Client) request(ctx context.Context, in request) (*http.Request, error) {
	var body io.Reader
	if in.body != nil {
		text, err := json.Marshal(in.body)
		if err != nil {
			return nil, fmt.Errorf("encode the body of %s %s: %w", in.method, in.path, err)
		}
		body = bytes.NewReader(text)
	}
	target := c.server.String() + in.path
	if len(in.query) > 0 {
		target += "?" + in.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, in.method, target, body)
	if err != nil {
		return nil, err
	}
	if in.body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", c.userAgent)
	return r, nil
}
