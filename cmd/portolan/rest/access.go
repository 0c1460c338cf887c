package rest

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/discovery/access/socket"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// Authenticator finds out who sends a request. The client sees its error, with status
// 401, or with the error's own status if that was made by package refusal.
type Authenticator interface {
	Authenticate(*http.Request) (access.Identity, error)
}

// Authorizer decides what an identity may do. The client sees its error, with status
// 403, or with the error's own status if that was made by package refusal.
type Authorizer interface {
	Authorize(context.Context, access.Identity, access.Request) error
}

// Granter is an Authorizer that also checks the content of writes.
type Granter interface {
	// Grants returns, for each operation of a batch, why it gives somebody rights that
	// the identity does not have; nil if it does not. An operation that could not be read
	// has neither a Config nor a Key. Grants may replace Configs by what is to be written.
	Grants(context.Context, access.Identity, []storage.Op) []error
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
	Access              access.Request
	Reason              string
}

type callKey struct{}

// IdentityOf returns who sends a request, from its context. It works behind Handle and
// Endpoint.
func IdentityOf(ctx context.Context) access.Identity {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		return c.identity
	}
	return access.Identity{}
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
		if !socket.FromThisMachine(c.r) {
			return c.noteRefused(refusal.Unauthorized("this server has no authentication configured and serves its own machine only"))
		}
		c.setIdentity(access.Identity{User: "local"})
		return c.refuseImpersonation()
	}
	c.rights = s.rights()
	identity, err := s.authenticator.Authenticate(c.r)
	if err != nil {
		s.offerSocket(c)
		return c.noteRefused(refusal.As(err, refusal.Unauthorized))
	}
	c.setIdentity(identity)
	return c.refuseImpersonation()
}

// impersonation begins the headers by which clients of Kubernetes ask to act as somebody else.
const impersonation = "Impersonate-"

// refuseImpersonation refuses a caller who asks to act as somebody else. The answer would be about
// the caller.
func (c *call) refuseImpersonation() error {
	for _, name := range slices.Sorted(maps.Keys(c.r.Header)) {
		if strings.HasPrefix(name, impersonation) {
			return c.noteRefused(refusal.Forbidden(fmt.Sprintf("header %s: nobody acts as another user here: leave it out (kubectl without --as), or give a token of that user", name)))
		}
	}
	return nil
}

// offerSocket tells a client on this machine without credentials about the socket of the
// server, which admits local users.
func (s *Server) offerSocket(c *call) {
	if s.socket != "" && !socket.OverSocket(c.r) && socket.FromThisMachine(c.r) && c.r.Header.Get("Authorization") == "" {
		c.w.Header().Set(socket.SocketHeader, url.PathEscape(s.socket))
		c.w.Header().Set(socket.ServerHeader, s.id)
	}
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
func (c *call) setIdentity(identity access.Identity) {
	c.identity, c.identified = identity, true
	ctx := context.WithValue(c.r.Context(), callKey{}, c)
	c.r = c.r.WithContext(storage.WithOrigin(ctx, storage.Origin{
		User: identity.User, Address: addressOf(c.r), Tool: c.r.UserAgent(),
	}))
}

func addressOf(r *http.Request) string {
	if socket.OverSocket(r) {
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

func (s *Server) authorize(c *call, wants access.Request) error {
	if s.authorizer == nil {
		return nil
	}
	if err := s.authorizer.Authorize(c.r.Context(), c.identity, wants); err != nil {
		return c.noteRefused(refusal.As(err, refusal.Forbidden))
	}
	return nil
}

// mayList says whether the caller may list the objects of a kind in a namespace.
func (s *Server) mayList(c *call, kind *schema.Schema, namespace string) bool {
	return s.authorizer == nil || s.authorizer.Authorize(c.r.Context(), c.identity, requestOf("list", kind, namespace)) == nil
}

// requestOf returns what a call on the objects of a kind in a namespace wants.
func requestOf(verb string, kind *schema.Schema, namespace string) access.Request {
	return access.Request{Verb: verb, Group: kind.Group, Version: kind.Versions[0], Resource: kind.Plural, Namespace: namespace}
}

// granting returns, for each operation, why it gives rights that the caller does not
// have. It returns nil if no check is needed. It may replace the objects of operations.
func (s *Server) granting(c *call, ops []storage.Op) []error {
	granter, ok := s.authorizer.(Granter)
	if !ok {
		return nil
	}
	errs := granter.Grants(c.r.Context(), c.identity, ops)
	for _, err := range errs {
		if err != nil {
			_ = c.noteRefused(refusal.As(err, refusal.Forbidden))
		}
	}
	return errs
}

// granted is like granting, for one operation.
func (s *Server) granted(c *call, op storage.Op) (storage.Op, error) {
	ops := []storage.Op{op}
	for _, err := range s.granting(c, ops) {
		if err != nil {
			return op, refusal.As(err, refusal.Forbidden)
		}
	}
	return ops[0], nil
}

// tellRefusal reports a refused call to onRefusal.
func (s *Server) tellRefusal(c *call) {
	if s.onRefusal == nil || c.refused == "" || c.w.Header().Get(socket.SocketHeader) != "" { // the client is sent to the socket instead
		return
	}
	s.onRefusal(Refusal{User: c.identity.User, Address: addressOf(c.r), Tool: c.r.UserAgent(), Access: c.access(), Reason: c.refused})
}
