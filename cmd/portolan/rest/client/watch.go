package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"
	"github.com/portolan-mesh/portolan/storage/config"
)

// Event is an event of a watch. Type is watch.Added, Modified, Deleted or Bookmark. The
// object of a Bookmark has only a resourceVersion.
type Event struct {
	Type   watch.EventType
	Object *unstructured.Unstructured
}

// Watch calls tell with each change after a revision, in order, until ctx ends. A watch
// from the resourceVersion of the last event misses nothing and may repeat events. It
// returns the error of tell, and nil if the server ended the watch. If the server has
// dropped the changes, the error is an IsResourceExpired; if the store never reached the
// revision, it is call.NotYet.
func (c *Client) Watch(ctx context.Context, resource runtimeschema.GroupVersionResource, namespace string, s Selection, after string, tell func(Event) error) error {
	query := s.add(url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "resourceVersion": {after}})
	if c.warned != nil {
		query.Set("warnings", "true")
	}
	in := call.Request{Method: http.MethodGet, Path: objectPath(resource, namespace, ""), Query: query}
	response, err := c.Send(ctx, in)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	for events := json.NewDecoder(response.Body); ; {
		var event struct {
			Type   watch.EventType `json:"type"`
			Object json.RawMessage `json:"object"`
		}
		var syntax *json.SyntaxError
		switch err := events.Decode(&event); {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &syntax):
			return fmt.Errorf("watch %s at %s: an event cannot be read: %w", in.Path, c.Server(), err)
		case err != nil:
			return c.Unreachable(ctx, in, true, err)
		case event.Type == watch.Error:
			var status metav1.Status
			if err := json.Unmarshal(event.Object, &status); err != nil {
				return fmt.Errorf("watch %s at %s: its error cannot be read: %w", in.Path, c.Server(), err)
			}
			return &apierrors.StatusError{ErrStatus: status}
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(event.Object); err != nil {
			return fmt.Errorf("watch %s at %s: an object cannot be read: %w", in.Path, c.Server(), err)
		}
		object.SetManagedFields(nil)
		if text, ok := object.GetAnnotations()[config.WarningsAnnotation]; ok && event.Type == watch.Bookmark && c.warned != nil {
			var warnings []string
			if err := json.Unmarshal([]byte(text), &warnings); err != nil {
				return fmt.Errorf("watch %s at %s: its warnings cannot be read: %w", in.Path, c.Server(), err)
			}
			c.warned(warnings)
		}
		if err := tell(Event{event.Type, object}); err != nil {
			return err
		}
	}
}

// Expired says whether a server cannot send the changes after a revision: it no longer
// has them, or its store was restored to an older state.
func Expired(err error) bool {
	if call.NotYet(err) {
		seconds, _ := apierrors.SuggestsClientDelay(err)
		return seconds == 0
	}
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}
