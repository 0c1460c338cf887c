package rest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cache/rest/batch"
	"github.com/portolan-mesh/portolan/storage"
)

// Identity is the user who sends a request.
type Identity struct {
	User   string
	Groups []string
	// Unproved says that only the origin of the request, this machine, identifies the
	// user. Private paths refuse such a user.
	Unproved bool
	// Until is when the proof expires, the zero time for never. Watches end then.
	Until time.Time
}

// Access is one action that a request wants to take. Outside the config API only Verb,
// the HTTP method in lower case, Path and Query are set.
type Access struct {
	// Verb is get, list, watch, create, update or delete; Administer for a Private path.
	Verb string
	// Group, Version and Resource (the plural) say which kind; Namespace and Name which
	// objects, empty for all. Subresource is status if the request is about nothing else
	// of them.
	Group, Version, Resource, Namespace, Name, Subresource string
	// Path is the path of the URL. Query has its parameters; it is not set in the config
	// API.
	Path  string
	Query url.Values
}

// Administer is the Verb of a second Access that a Private path needs, beside the Access
// for the method.
const Administer = "administer"

// Authenticator finds out who sends a request. The client sees its error, with status
// 401, or with the error's own status if that was made by Refuse.
type Authenticator interface {
	Authenticate(*http.Request) (Identity, error)
}

// Authorizer decides what an identity may do. The client sees its error, with status
// 403, or with the error's own status if that was made by Refuse.
type Authorizer interface {
	Authorize(context.Context, Identity, Access) error
}

// Granter is an Authorizer that also checks the content of writes.
type Granter interface {
	// Grants returns, for each operation of a batch, why it gives somebody rights that
	// the identity does not have; nil if it does not. An operation that could not be read
	// has neither a Config nor a Key.
	Grants(context.Context, Identity, []storage.Op) []error
}

// Changing is an Authorizer whose answers change, together with the answers of the
// Authenticator. A watch ends when its user loses the right to it.
type Changing interface {
	// Rights returns a value that differs, by ==, from an earlier one if an answer may
	// have changed.
	Rights() any
}

// A Refusal is a refused attempt.
type Refusal struct {
	// User is who was refused, empty if unknown.
	User, Address, Tool string
	Access              Access
	Reason              string
}

type callKey struct{}

// IdentityOf returns who sends a request, from its context. It works behind Handle and
// Endpoint.
func IdentityOf(ctx context.Context) Identity {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.identity
	}
	return Identity{}
}

// admit finds out who calls, and whether they may.
func (s *Server) admit(c *call) error {
	if err := s.authenticate(c); err != nil {
		return err
	}
	return s.authorize(c, c.access())
}

func (s *Server) authenticate(c *call) error {
	if s.authenticator == nil {
		if !FromThisMachine(c.r) {
			return c.noteRefused(unauthorized("this server has no authentication configured and serves its own machine only"))
		}
		c.setIdentity(Identity{User: "local"})
		return nil
	}
	c.rights = s.rights()
	identity, err := s.authenticator.Authenticate(c.r)
	if err != nil {
		s.offerSocket(c)
		return c.noteRefused(asRefused(err, unauthorized))
	}
	c.setIdentity(identity)
	return nil
}

// offerSocket tells a client on this machine without credentials about the socket of the
// server, which admits local users.
func (s *Server) offerSocket(c *call) {
	if s.socket != "" && !OverSocket(c.r) && FromThisMachine(c.r) && c.r.Header.Get("Authorization") == "" {
		c.w.Header().Set(SocketHeader, url.PathEscape(s.socket))
		c.w.Header().Set(ServerHeader, s.id)
	}
}

// asRefused returns an error made by Refuse unchanged, and another one through make.
func asRefused(err error, make func(string) *apierrors.StatusError) *apierrors.StatusError {
	var status *apierrors.StatusError
	if errors.As(err, &status) {
		return status
	}
	return make(err.Error())
}

// noteRefused records why the caller is refused, and returns the error.
func (c *call) noteRefused(err *apierrors.StatusError) error {
	if code := err.ErrStatus.Code; code == http.StatusUnauthorized || code == http.StatusForbidden {
		c.refused = err.ErrStatus.Message
	}
	return err
}

// rights returns the present rights of a Changing; nil if rights never change.
func (s *Server) rights() any {
	if changing, ok := s.authorizer.(Changing); ok {
		return changing.Rights()
	}
	return nil
}

// reauthorize returns nil as long as the caller has the right to the call.
func (s *Server) reauthorize(c *call) error {
	if s.rights() == c.rights {
		return nil
	}
	again := *c
	err := s.admit(&again)
	c.rights, c.refused = again.rights, again.refused
	return err
}

// setIdentity sets the identity of the caller, also for the history.
func (c *call) setIdentity(identity Identity) {
	c.identity = identity
	ctx := context.WithValue(c.r.Context(), callKey{}, c)
	c.r = c.r.WithContext(storage.WithOrigin(ctx, storage.Origin{
		User: identity.User, Address: addressOf(c.r), Tool: c.r.UserAgent(),
	}))
}

// addressOf returns where a request comes from.
func addressOf(r *http.Request) string {
	if OverSocket(r) {
		return "unix socket"
	}
	return r.RemoteAddr
}

// setMessage sets the client's message about its change, for the history.
func (c *call) setMessage(message string, found *faults) {
	switch {
	case len(message) > batch.MaxMessage:
		found.cannotRead("message", fmt.Sprintf("has %d bytes, and may have %d", len(message), batch.MaxMessage))
	case !utf8.ValidString(message) || strings.ContainsFunc(message, unicode.IsControl):
		found.cannotRead("message", fmt.Sprintf("%q is not one line of text", message))
	case message != "":
		origin := storage.OriginOf(c.r.Context())
		origin.Message = message
		c.r = c.r.WithContext(storage.WithOrigin(c.r.Context(), origin))
	}
}

func (s *Server) authorize(c *call, access Access) error {
	if s.authorizer == nil {
		return nil
	}
	if err := s.authorizer.Authorize(c.r.Context(), c.identity, access); err != nil {
		return c.noteRefused(asRefused(err, forbidden))
	}
	return nil
}

// granting returns, for each operation, why it gives rights that the caller does not
// have. It returns nil if no check is needed.
func (s *Server) granting(c *call, ops []storage.Op) []error {
	granter, ok := s.authorizer.(Granter)
	if !ok {
		return nil
	}
	errs := granter.Grants(c.r.Context(), c.identity, ops)
	for _, err := range errs {
		if err != nil {
			_ = c.noteRefused(asRefused(err, forbidden))
		}
	}
	return errs
}

// tellRefusal reports a refused call to onRefusal.
func (s *Server) tellRefusal(c *call) {
	if s.onRefusal == nil || c.refused == "" || c.w.Header().Get(SocketHeader) != "" { // the client is sent to the socket instead
		return
	}
	s.onRefusal(Refusal{User: c.identity.User, Address: addressOf(c.r), Tool: c.r.UserAgent(), Access: c.access(), Reason: c.refused})
}
