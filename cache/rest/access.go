package rest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/portolan-mesh/portolan/cache/rest/batch"
	"github.com/portolan-mesh/portolan/storage"
)

// Identity is the user who sends a request.
type Identity struct {
	User   string
	Groups []string
}

// Access is one action that a request wants to take. Outside the config API only Verb,
// the HTTP method in lower case, and Path are set.
type Access struct {
	// Verb is get, list, watch, create, update or delete.
	Verb string
	// Group, Version and Resource (the plural) say which kind; Namespace and Name
	// which objects, empty for all; Subresource is status where it is about nothing
	// else of them.
	Group, Version, Resource, Namespace, Name, Subresource string
	// Path is the path of the URL.
	Path string
}

// Authenticator finds out who sends a request. An error is shown to the client,
// who is turned away with 401.
type Authenticator interface {
	Authenticate(*http.Request) (Identity, error)
}

// Authorizer decides what an identity may do. An error is shown to the client,
// who is turned away with 403.
type Authorizer interface {
	Authorize(context.Context, Identity, Access) error
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
		if !fromThisMachine(c.r) {
			return unauthorized("this server has no authentication configured and serves its own machine only")
		}
		c.is(Identity{User: "local"})
		return nil
	}
	identity, err := s.authenticator.Authenticate(c.r)
	if err != nil {
		return unauthorized(err.Error())
	}
	c.is(identity)
	return nil
}

// is keeps the identity of the caller, also for the history of the changes.
func (c *call) is(identity Identity) {
	c.identity = identity
	address := c.r.RemoteAddr
	if overSocket(c.r) {
		address = "unix socket"
	}
	c.r = c.r.WithContext(storage.WithOrigin(c.r.Context(), storage.Origin{
		User: identity.User, Address: address, Tool: c.r.UserAgent(),
	}))
}

// say keeps the message of the client about its change, for the history.
func (c *call) say(message string, found *faults) {
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
		return forbidden(err.Error())
	}
	return nil
}
