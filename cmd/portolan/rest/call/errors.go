package call

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// UnreachableError is the error of a call without an answer.
type UnreachableError struct {
	// Server is the URL of the server.
	Server string
	// Unknown says that a write was sent, so it may or may not have been done.
	Unknown bool
	// Err is the cause.
	Err error

	unsent bool // nothing of the call was sent
}

// Error implements error.
func (e *UnreachableError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("no answer from the server at %s: %v: the change may or may not have been made; look before you repeat it", e.Server, e.Err)
	}
	if errors.Is(e.Err, context.DeadlineExceeded) {
		return fmt.Sprintf("no answer from the server at %s: %v", e.Server, e.Err)
	}
	if Untrusted(e.Err) {
		return fmt.Sprintf("cannot reach the server at %s: %v", e.Server, e.Err)
	}
	return fmt.Sprintf("cannot reach the server at %s: %v: is it running (portolan serve)? Name another one with --server or PORTOLAN_SERVER", e.Server, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// ExitCode implements exit.Coder.
func (e *UnreachableError) ExitCode() int { return exit.Unreachable }

// Unreachable returns the error of a call without an answer; sent says whether the
// server may have read the call.
func (c *Client) Unreachable(ctx context.Context, in Request, sent bool, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("%s %s: %w", in.Method, in.Path, context.Canceled)
	}
	var withURL *url.Error
	if errors.As(err, &withURL) {
		err = withURL.Err
	}
	switch {
	case errors.Is(err, http.ErrSchemeMismatch):
		err = errors.New("it serves http, not https")
	case explainTLS(err) != nil:
		err = explainTLS(err)
		sent = false
	case c.server.Scheme == "https" && connectionCut(err):
		err = fmt.Errorf("it closed the connection (%w)"+whyRefused, err)
	case strings.Contains(err.Error(), "malformed HTTP"):
		err = errors.New("it does not speak HTTP/1.1, as the config API does: is this where proxies connect (serve --xds-address), and not its --api-address?")
		sent = false
	}
	return &UnreachableError{Server: c.server.String(), Unknown: sent && in.writes(), Err: err, unsent: !sent}
}

// endedBefore says whether the time for a call was up before anything was sent.
func endedBefore(err error) bool {
	var e *UnreachableError
	return errors.As(err, &e) && e.unsent && errors.Is(err, context.DeadlineExceeded)
}

// writes says whether a call may change what is stored.
func (r Request) writes() bool { return r.Method != http.MethodGet && !r.Query.Has("dryRun") }

// NotYet says whether a read failed because the server has not reached the requested
// revision: the call may be repeated.
func NotYet(err error) bool {
	return apierrors.HasStatusCause(err, metav1.CauseTypeResourceVersionTooLarge)
}

// refused returns the error of an answer without success. An answer that is not a Status
// comes from another program, such as a proxy, and not from the server.
func (c *Client) refused(in Request, response *http.Response, body []byte) error {
	var status metav1.Status
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		return &apierrors.StatusError{ErrStatus: status}
	}
	return c.foreign(in, response, body)
}

// foreign returns the error of an answer that no Portolan server gives.
func (c *Client) foreign(in Request, response *http.Response, body []byte) error {
	text := strings.TrimSpace(string(body))
	if len(text) > 200 {
		text = text[:200] + "..."
	}
	switch {
	case strings.HasPrefix(response.Header.Get("Content-Type"), "application/grpc"):
		text = ": is this where proxies connect (serve --secure-xds-address), and not its --api-address?"
	case text != "":
		text = ": " + text
	}
	return &UnreachableError{
		Server: c.server.String(), Unknown: in.writes() && (response.StatusCode < 300 || response.StatusCode >= http.StatusInternalServerError),
		Err: fmt.Errorf("the answer is %s, and not from a Portolan server%s", response.Status, text),
	}
}

func warningsOf(header http.Header) []string {
	parsed, _ := utilnet.ParseWarningHeaders(header.Values("Warning")) // an unreadable warning is not ours
	var out []string
	for _, w := range parsed {
		out = append(out, w.Text)
	}
	return out
}
