package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"net/http"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// An EndpointFunc answers a request, or returns an error and has written nothing.
type EndpointFunc func(http.ResponseWriter, *http.Request) error

// Endpoint serves a further path as Handle does, and answers errors as the API does: a
// store's error by its class, one of package refusal unchanged, and others as 500. The context of
// the request says who sent it (storage.OriginOf). Call it before the server serves; it
// panics if the pattern is taken.
func (s *Server) Endpoint(pattern string, answer EndpointFunc) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, func(c *call) error {
			if err := s.admit(c); err != nil {
				return err
			}
			return c.recordRefusal(answer(c.w, c.r))
		})
	})
}

// recordRefusal returns an error of an endpoint, and records it if it refuses the caller.
func (c *call) recordRefusal(err error) error {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		_ = c.noteRefused(status)
	}
	return err
}

// EndpointFor is Endpoint for a path about objects of a kind, which the server must
// serve: users need the right to a verb on them, such as create. The pattern may have
// {namespace} and {name}. The parameter message is the user's comment, as in every
// write; other parameters are refused.
func (s *Server) EndpointFor(kind config.GroupVersionKind, verb, pattern string, answer EndpointFunc) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, func(c *call) error {
			c.schema, c.version, c.verb = s.schemas.Kind(kind), kind.Version, verb
			c.namespace, c.name, c.kind = c.r.PathValue("namespace"), c.r.PathValue("name"), kind.Kind
			if err := s.admit(c); err != nil {
				return err
			}
			var found faults
			for _, name := range slices.Sorted(maps.Keys(c.query)) {
				if name != "message" {
					found.cannotRead(name, "is no parameter of this path")
				}
			}
			c.setMessage(c.query.Get("message"), &found)
			if err := found.error("the parameters of the URL cannot be read", metav1.StatusDetails{}); err != nil {
				return err
			}
			return c.recordRefusal(answer(c.w, c.r))
		})
	})
}

// Await waits for the cache to show a revision that an endpoint wrote, so that its
// client reads its own writes here. It does not wait long: the write is done.
func (s *Server) Await(ctx context.Context, revision string) { s.await(ctx, revision) }

// WriteJSON answers with a value of a type that always encodes.
func WriteJSON(w http.ResponseWriter, code int, value any) { writeJSON(w, code, value) }

// maxEndpointBody bounds the bodies that ReadJSON reads.
const maxEndpointBody = 64 << 10

// ReadJSON reads the body of a request into a value: JSON, or YAML with its
// Content-Type, of at most 64 KiB. Fields that the value does not have are an error. An
// empty body leaves the value unchanged.
func ReadJSON(w http.ResponseWriter, r *http.Request, into any) error {
	if r.ContentLength == 0 {
		return nil
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxEndpointBody)
	body, err := newBudget().readJSON(&call{w: w, r: r}, "the body")
	if err != nil {
		return err
	}
	if err := decodeStrict(body, into); err != nil {
		return refusal.BadRequest("the body cannot be read: " + err.Error())
	}
	return nil
}

// ReadReview reads the body of a request as ReadJSON does. Clients of Kubernetes may
// send a protobuf message instead, as kubectl does for Kubernetes' own kinds. ReadReview
// decodes it into message, and its fields, as JSON, into a value.
func ReadReview(w http.ResponseWriter, r *http.Request, message message, into any) error {
	if media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); media != runtime.ContentTypeProtobuf {
		return ReadJSON(w, r, into)
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxEndpointBody)
	body, err := newBudget().readRaw(&call{w: w, r: r})
	if err != nil {
		return err
	}
	envelope, err := unwrap(body)
	if err != nil {
		return err
	}
	if err = message.Unmarshal(envelope.Raw); err == nil {
		body, err = json.Marshal(message)
	}
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		return refusal.BadRequest("the body cannot be read: " + err.Error())
	}
	return nil
}

// decodeStrict decodes one value of JSON. Fields that the value does not have and text
// behind it are errors; an empty body leaves the value unchanged.
func decodeStrict(body []byte, into any) error {
	if len(body) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return err
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("text follows its end")
	}
	return nil
}
