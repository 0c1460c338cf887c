package login

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"time"

	"golang.org/x/oauth2"
)

// The pauses between two polls for the user's consent, in seconds, and how long a code is
// valid at most.
const (
	usualInterval = 5
	maxInterval   = 60
	maxLife       = time.Hour
)

// Device is a login that waits for its user.
type Device struct {
	// URL is where the user gives consent. Code is to be entered there; if Complete is set,
	// the URL contains the code, and the user only compares it. Both texts are printable.
	URL, Code string
	Complete  bool
	// Until is when the code expires.
	Until time.Time

	session *session
	auth    oauth2.DeviceAuthResponse
}

// Start begins a login. Close the Device in the end.
func Start(ctx context.Context, c Client) (*Device, error) {
	s, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	d, err := s.start(ctx)
	if err != nil {
		s.close()
		return nil, err
	}
	return d, nil
}

func (s *session) start(ctx context.Context) (*Device, error) {
	if s.provider.DeviceURL == "" {
		return nil, s.errorf("has no device flow (device_authorization_endpoint): have it allowed there, or log in with a token (--token-file)")
	}
	d := &Device{session: s}
	form := url.Values{"client_id": {s.ID}, "scope": {strings.Join(s.scopes(), " ")}}
	if err := s.post(ctx, s.provider.DeviceURL, form, &d.auth); err != nil {
		return nil, s.fault(ctx, err)
	}
	if d.auth.DeviceCode == "" || d.auth.UserCode == "" || d.auth.VerificationURI == "" {
		return nil, s.errorf("cannot be understood: %w", errUnreadable)
	}
	d.bound(time.Now())
	return d, nil
}

// bound limits the values that the provider has sent.
func (d *Device) bound(now time.Time) {
	if d.auth.Expiry.IsZero() || d.auth.Expiry.After(now.Add(maxLife)) {
		d.auth.Expiry = now.Add(maxLife)
	}
	if d.auth.Interval <= 0 {
		d.auth.Interval = usualInterval
	}
	d.auth.Interval = min(d.auth.Interval, maxInterval)
	d.Code, d.Until = printable(d.auth.UserCode), d.auth.Expiry
	d.URL, d.Complete = printable(d.auth.VerificationURI), d.auth.VerificationURIComplete != ""
	if d.Complete {
		d.URL = printable(d.auth.VerificationURIComplete)
	}
}

// Close closes the connections of the login.
func (d *Device) Close() { d.session.close() }

// Wait waits for the user's consent, and returns the tokens. If the provider does not answer,
// it goes on polling, and calls away the first time.
func (d *Device) Wait(ctx context.Context, away func(error)) (Tokens, error) {
	s := d.session
	for within, reported := s.withHTTP(ctx), false; ; {
		token, err := s.config().DeviceAccessToken(within, &d.auth)
		if err == nil {
			return s.tokens(token)
		}
		if ctx.Err() != nil {
			return Tokens{}, ctx.Err()
		}
		if err == context.DeadlineExceeded || !time.Now().Before(d.auth.Expiry) {
			return Tokens{}, errLate
		}
		err = s.fault(ctx, err, d.auth.DeviceCode)
		switch {
		case errors.Is(err, ErrEnded): // the provider no longer knows the code
			return Tokens{}, errLate
		case !errors.Is(err, ErrAway):
			return Tokens{}, err
		case !reported:
			reported = true
			away(err)
		}
		d.auth.Interval = min(2*d.auth.Interval, maxInterval)
	}
}

// Refresh gets the next tokens with a refresh token. That may be good only once, so keep the
// returned one. The error wraps ErrAway if a retry may succeed, and ErrEnded if none will.
func Refresh(ctx context.Context, c Client, refresh string) (Tokens, error) {
	s, err := c.open(ctx)
	if err != nil {
		return Tokens{}, err
	}
	defer s.close()
	token, err := s.config().TokenSource(s.withHTTP(ctx), &oauth2.Token{RefreshToken: refresh}).Token()
	if err != nil {
		return Tokens{}, s.fault(ctx, err, refresh)
	}
	return s.tokens(token)
}

// Revoke tells the provider that a refresh token is no longer used. It returns false if the
// provider does not support that.
func Revoke(ctx context.Context, c Client, refresh string) (bool, error) {
	s, err := c.open(ctx)
	if err != nil {
		return false, err
	}
	defer s.close()
	if s.provider.RevokeURL == "" {
		return false, nil
	}
	form := url.Values{"client_id": {s.ID}, "token": {refresh}, "token_type_hint": {"refresh_token"}}
	if err := s.post(ctx, s.provider.RevokeURL, form, nil); err != nil {
		return false, s.fault(ctx, err, refresh)
	}
	return true, nil
}
