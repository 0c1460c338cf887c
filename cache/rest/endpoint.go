package rest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// An EndpointFunc answers a request, or returns why it does not: then it has
// written nothing.
type EndpointFunc func(http.ResponseWriter, *http.Request) error

// Endpoint serves a further path as Handle does, with errors answered as those
// of the API: a store's by what it means, one of Refuse as it is, and others as
// 500. The context of the request says who sent it (storage.OriginOf). It must
// be called before the server serves, and panics where the pattern is taken.
func (s *Server) Endpoint(pattern string, answer EndpointFunc) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		s.serve(w, r, func(c *call) error {
			if err := s.admit(c); err != nil {
				return err
			}
			return answer(c.w, c.r)
		})
	})
}

// Refuse is an error that a client is shown as it is, as a metav1.Status.
func Refuse(code int, reason metav1.StatusReason, message string) *apierrors.StatusError {
	return refuse(int32(code), reason, message)
}

// BadRequest is the Refuse of a request that cannot be understood.
func BadRequest(message string) *apierrors.StatusError { return badRequest(message) }

// Unavailable is the Refuse of what may succeed if it is tried again.
func Unavailable(message string) *apierrors.StatusError { return unavailable(message) }

// WriteJSON answers with a value of a type that always encodes.
func WriteJSON(w http.ResponseWriter, code int, value any) { writeJSON(w, code, value) }

// ReadJSON reads the body of a request, JSON or YAML that says so in its
// Content-Type, into a value. Fields that the value does not have are an error.
// An empty body leaves the value as it is.
func ReadJSON(w http.ResponseWriter, r *http.Request, into any) error {
	if r.ContentLength == 0 {
		return nil
	}
	body, isYAML, err := readBody(&call{w: w, r: r})
	if err != nil {
		return err
	}
	if isYAML {
		if body, err = yaml.YAMLToJSONStrict(body); err != nil {
			return badRequest("the body is not valid YAML: " + err.Error())
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return badRequest("the body cannot be read: " + err.Error())
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return badRequest("the body cannot be read: text follows its end")
	}
	return nil
}
