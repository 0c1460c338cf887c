package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/contexts"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/login"
)

// session is the login of a context. It replaces the token shortly before it expires, for all
// programs that use the context.
type session struct {
	context, server string
	now             func() time.Time

	mu          sync.Mutex
	id, refused string // the newest ID token, and the one that the server has refused; guarded by mu
}

func newSession(e *Environment, name string) *session {
	return &session{context: name, server: e.Server, now: e.Now}
}

// token returns a valid ID token. It differs from the one that the server has refused, if the
// provider gives another one.
func (s *session) token(ctx context.Context, refused string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = refused
	if s.fresh(s.id) {
		return s.id, nil
	}
	file, err := contexts.Read(ContextsFile())
	if err != nil {
		return "", exit.With(exit.Data, err)
	}
	if one, err := s.loginIn(file); err != nil || s.fresh(one.IDToken) {
		s.id = one.IDToken
		return s.id, err
	}
	err = contexts.Update(ctx, ContextsFile(), func(file contexts.File) (contexts.File, bool, error) { return s.renew(ctx, file) })
	return s.id, err
}

// renew replaces the token of the context, unless another program has done so in the meantime.
func (s *session) renew(ctx context.Context, file contexts.File) (contexts.File, bool, error) {
	one, err := s.loginIn(file)
	if err != nil || s.fresh(one.IDToken) {
		s.id = one.IDToken
		return file, false, err
	}
	_, until := login.Due(one.IDToken)
	good := s.now().Before(until)
	switch {
	case one.RefreshToken == "" && good:
		s.id = one.IDToken
		return file, false, nil
	case one.RefreshToken == "":
		return file, false, fmt.Errorf("the login of the context %s ended at %s: %w", s.context, until.Format(time.RFC3339), login.ErrEnded)
	}
	tokens, err := login.Refresh(ctx, ClientOf(one), one.RefreshToken)
	switch {
	case errors.Is(err, login.ErrAway) && good:
		s.id = one.IDToken
		return file, false, nil
	case err != nil:
		return file, false, fmt.Errorf("the login of the context %s cannot be renewed: %w", s.context, err)
	}
	next := *one
	next.IDToken, next.RefreshToken = tokens.ID, tokens.Refresh
	kept, _ := file.Find(s.context)
	kept.Login = &next
	s.id = next.IDToken
	return file.With(kept), true, nil
}

func (s *session) loginIn(file contexts.File) (*contexts.Login, error) {
	one, _ := file.Find(s.context)
	if one.Login == nil || !Among(one.Login.Server, s.server) {
		return &contexts.Login{}, fmt.Errorf("the context %s is logged out: %w", s.context, login.ErrEnded)
	}
	return one.Login, nil
}

// fresh says whether to use an ID token. A token that the server has refused is not fresh even
// if it seems valid, since this machine's clock may be wrong.
func (s *session) fresh(id string) bool {
	due, _ := login.Due(id)
	return id != s.refused && s.now().Before(due)
}

// ClientOf returns the client of a login at its provider.
func ClientOf(l *contexts.Login) login.Client {
	return login.Client{Issuer: l.Issuer, ID: l.ClientID, CA: l.CA}
}
