package login

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode"

	"golang.org/x/oauth2"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

var (
	// ErrAway means that a retry may succeed: the provider does not answer, or not now.
	ErrAway = exit.With(exit.Unreachable, errors.New("try again"))
	// ErrEnded means that the login is over and the user has to log in again.
	ErrEnded = exit.With(exit.Forbidden, errors.New("log in again: portolan login"))
	// errLate means that nobody used the code in time.
	errLate = errors.New("the code was not used in time: portolan login shows another")
)

// fault returns the error of a request in a user's terms, without any part of the provider's
// answer that may be secret.
func (s *session) fault(ctx context.Context, err error, secrets ...string) error {
	var told *oauth2.RetrieveError
	var sent *url.Error
	switch {
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return s.errorf("did not answer in time: %w", ctx.Err())
	case errors.As(err, &told):
		return s.refused(told, secrets)
	case !errors.As(err, &sent):
		return s.errorf("cannot be understood: %w", errUnreadable)
	}
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return s.errorf("has a certificate of no authority that is trusted: the ca of its TokenIssuer names it")
	}
	return s.errorf("does not answer (%s): %w", printable(sent.Err.Error()), ErrAway)
}

// refused returns the error for a provider's refusal, with what to do.
func (s *session) refused(refusal *oauth2.RetrieveError, secrets []string) error {
	what := refusal.ErrorCode
	if refusal.ErrorDescription != "" {
		what += ", " + refusal.ErrorDescription
	}
	if what == "" {
		what = refusal.Response.Status
	}
	for _, secret := range secrets {
		if secret != "" && strings.Contains(what, secret) {
			what = refusal.Response.Status
		}
	}
	what = printable(what)
	switch code := refusal.ErrorCode; {
	case code == "access_denied":
		return s.errorf("denies the login (%s)", what)
	case code == "expired_token":
		return errLate
	case code == "invalid_client", code == "unauthorized_client", code == "unsupported_grant_type":
		return s.errorf("does not let the client %q log users in with the device flow (%s): allow it that there, as a client without a secret, or correct users.login.clientId of the TokenIssuer", s.ID, what)
	case code == "invalid_scope":
		return s.errorf("does not give the scopes %s (%s): set users.login.scopes of the TokenIssuer", strings.Join(s.scopes(), ", "), what)
	case code == "invalid_grant":
		return s.errorf("has ended the login (%s): %w", what, ErrEnded)
	case code == "temporarily_unavailable", code == "server_error", refusal.Response.StatusCode >= http.StatusInternalServerError, refusal.Response.StatusCode == http.StatusTooManyRequests:
		return s.errorf("cannot answer now (%s): %w", what, ErrAway)
	}
	return s.errorf("refuses the request: %s", what)
}

// maxShown is how many characters of a provider's text are shown.
const maxShown = 300

// printable makes a foreign text safe for a terminal.
func printable(text string) string {
	out := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if runes := []rune(out); len(runes) > maxShown {
		return fmt.Sprintf("%s...", string(runes[:maxShown]))
	}
	return out
}
