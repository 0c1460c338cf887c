package login

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"github.com/portolan-mesh/portolan/discovery/identity/jwks"
)

const (
	// answerTime bounds each request to a provider.
	answerTime = 10 * time.Second
	// maxAnswer bounds the bytes of an answer.
	maxAnswer = 1 << 20
)

// Client is this program as registered with a provider.
type Client struct {
	// Issuer is the URL of the provider. ID is the client id there; the client has no secret.
	Issuer, ID string
	// CA holds the PEM certificates of the authorities that may sign the provider's
	// certificate; empty means the system's.
	CA string
	// Scopes are the scopes to request besides openid. None means those of profile, email,
	// groups and offline_access that the provider supports.
	Scopes []string
	// Transport carries the requests; nil means one that verifies with CA.
	Transport http.RoundTripper
}

// usual are the scopes to request if Scopes is empty.
var usual = []string{"profile", "email", "groups", "offline_access"}

// document is the provider's discovery document.
type document struct {
	Issuer    string   `json:"issuer"`
	DeviceURL string   `json:"device_authorization_endpoint"`
	TokenURL  string   `json:"token_endpoint"`
	RevokeURL string   `json:"revocation_endpoint"`
	Scopes    []string `json:"scopes_supported"`
}

type session struct {
	Client
	http     *http.Client
	provider document
}

func (c Client) open(ctx context.Context) (*session, error) {
	roundTripper := c.Transport
	if roundTripper == nil {
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if c.CA != "" {
			config.RootCAs = x509.NewCertPool()
			if !config.RootCAs.AppendCertsFromPEM([]byte(c.CA)) {
				return nil, c.errorf("cannot be verified: the ca of its TokenIssuer has no certificate")
			}
		}
		roundTripper = &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true, MaxResponseHeaderBytes: 64 << 10}
	}
	s := &session{Client: c, http: &http.Client{
		Transport: roundTripper, Timeout: answerTime,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // requests carry secrets for this URL only
	}}
	if err := s.discover(ctx); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *session) close() { s.http.CloseIdleConnections() }

// discover fetches the provider's document.
func (s *session) discover(ctx context.Context) error {
	at := strings.TrimSuffix(s.Issuer, "/") + "/.well-known/openid-configuration"
	if err := jwks.CheckURL(at); err != nil {
		return s.errorf("has no URL to log in at: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return s.errorf("has no URL to log in at: %w", err)
	}
	if err := s.do(request, &s.provider); err != nil {
		return s.fault(ctx, err)
	}
	return s.provider.check(s.Client)
}

// check returns why a client cannot use the document, nil if it can.
func (d *document) check(c Client) error {
	if d.Issuer != c.Issuer {
		return c.errorf("says that it is %s: correct the issuer of the TokenIssuer", printable(d.Issuer))
	}
	if d.TokenURL == "" {
		return c.errorf("has no token_endpoint: nobody can log in with it")
	}
	for _, one := range []struct{ what, url string }{{"token_endpoint", d.TokenURL}, {"device_authorization_endpoint", d.DeviceURL}, {"revocation_endpoint", d.RevokeURL}} {
		if one.url == "" {
			continue
		}
		if err := jwks.CheckURL(one.url); err != nil {
			return c.errorf("has a %s that nothing is sent to: %s", one.what, printable(err.Error()))
		}
	}
	return nil
}

// config returns the client in the form of package oauth2.
func (s *session) config() *oauth2.Config {
	return &oauth2.Config{
		ClientID: s.ID, Scopes: s.scopes(),
		Endpoint: oauth2.Endpoint{DeviceAuthURL: s.provider.DeviceURL, TokenURL: s.provider.TokenURL, AuthStyle: oauth2.AuthStyleInParams},
	}
}

// scopes returns the scopes to request.
func (s *session) scopes() []string {
	out := []string{"openid"}
	wanted := s.Scopes
	if len(wanted) == 0 {
		wanted = slices.DeleteFunc(slices.Clone(usual), func(scope string) bool { return !slices.Contains(s.provider.Scopes, scope) })
	}
	for _, scope := range wanted {
		if !slices.Contains(out, scope) {
			out = append(out, scope)
		}
	}
	return out
}

// withHTTP makes package oauth2 use the client's connections.
func (s *session) withHTTP(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, s.http)
}

// post sends a form, and reads the answer.
func (s *session) post(ctx context.Context, to string, form url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(form.Encode()))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return s.do(request, into)
}

// do sends a request, and reads the answer up to maxAnswer into into; nil ignores the answer.
func (s *session) do(request *http.Request, into any) error {
	request.Header.Set("Accept", "application/json")
	response, err := s.http.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return refusalOf(response, text)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return errUnreadable
	}
	return nil
}

// errUnreadable stands for an answer that cannot be read. The answer may contain tokens, so it
// is never shown.
var errUnreadable = errors.New("what it answers is not what a provider of OpenID Connect does")

// refusalOf returns the error for an answer without success.
func refusalOf(response *http.Response, text []byte) *oauth2.RetrieveError {
	out := &oauth2.RetrieveError{Response: response}
	var told struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	if json.Unmarshal(text, &told) == nil {
		out.ErrorCode, out.ErrorDescription = told.Code, told.Description
	}
	return out
}

func (c Client) errorf(format string, args ...any) error {
	return fmt.Errorf("the provider %s %w", printable(c.Issuer), fmt.Errorf(format, args...))
}
