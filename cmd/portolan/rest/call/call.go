package call

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/discovery/access/socket"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// Options configure a Client. The zero Options are ready to use.
type Options struct {
	// HTTP makes the calls; nil is a client with Go's defaults.
	HTTP *http.Client
	// Token is the bearer token of each call, empty for none. The client sends it only
	// over TLS, over a socket, or to this machine.
	Token string
	// Tokens, if set, returns the bearer token of a call, in place of Token. The call
	// fails with its error. If the server refuses a token, the client calls Tokens again
	// with the refused token, and repeats the call if it returns another one. Several
	// goroutines may call it.
	Tokens func(ctx context.Context, refused string) (string, error)
	// UserAgent names the program to the server.
	UserAgent string
	// Patience is how long a call waits for a server that is starting: one that refuses
	// connections, or that has not read its store yet. Such a server has done nothing of
	// the call.
	Patience time.Duration
	// Waiting is called once, when the first call begins to wait; it may be nil.
	Waiting func()
}

// Client calls one server. It may be used by several goroutines.
type Client struct {
	server    *url.URL
	http      *http.Client
	userAgent string
	tokens    func(ctx context.Context, refused string) (string, error)
	patience  time.Duration
	waiting   func()
}

// New returns a client of the server at a URL such as http://127.0.0.1:15080, or at a socket
// such as unix:/run/portolan/api.sock. Host and port alone mean http. It does not call the
// server.
func New(server string, o Options) (*Client, error) {
	if path, ok := strings.CutPrefix(server, "unix:"); ok {
		server, o.HTTP = "http://localhost", socket.Client(strings.TrimPrefix(path, "//"))
	}
	if !strings.Contains(server, "://") {
		server = "http://" + server
	}
	base, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("server %q is not a URL: %w", server, err)
	}
	if (base.Scheme != "http" && base.Scheme != "https") || base.Host == "" {
		return nil, fmt.Errorf("server %q is not a URL such as http://127.0.0.1:15080", server)
	}
	if o.Token != "" || o.Tokens != nil {
		if err := mayHaveToken(base); err != nil {
			return nil, err
		}
	}
	if o.Tokens == nil {
		o.Tokens = func(context.Context, string) (string, error) { return o.Token, nil }
	}
	base.Path = strings.TrimSuffix(base.Path, "/")
	if o.HTTP == nil {
		o.HTTP = &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	}
	if o.UserAgent == "" {
		o.UserAgent = "portolan"
	}
	if o.Waiting == nil {
		o.Waiting = func() {}
	}
	return &Client{server: base, http: o.HTTP, userAgent: o.UserAgent, tokens: o.Tokens, patience: o.Patience, waiting: sync.OnceFunc(o.Waiting)}, nil
}

// mayHaveToken returns why a token may not be sent to a server; nil if it may.
func mayHaveToken(server *url.URL) error {
	ip := net.ParseIP(server.Hostname())
	switch {
	case server.Scheme == "https" || server.Hostname() == "localhost" || ip != nil && ip.IsLoopback():
		return nil
	}
	return fmt.Errorf("a token is not sent in the clear to %s: use https", server.Host)
}

// Server returns the URL of the server.
func (c *Client) Server() string { return c.server.String() }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// DeletePath sends a DELETE to an escaped path of the server.
func (c *Client) DeletePath(ctx context.Context, path string) error {
	_, err := c.Do(ctx, Request{Method: http.MethodDelete, Path: path}, nil)
	return err
}

// JSON reads the server's answer at a path, which may have a query, into a value.
func (c *Client) JSON(ctx context.Context, path string, into any) error {
	path, text, _ := strings.Cut(path, "?")
	query, err := url.ParseQuery(text)
	if err != nil {
		return fmt.Errorf("query of %s: %w", path, err)
	}
	_, err = c.Do(ctx, Request{Method: http.MethodGet, Path: path, Query: query}, into)
	return err
}

// Request is a call of the server.
type Request struct {
	Method, Path string // the path is escaped
	Query        url.Values
	Body         any // encoded as JSON, unless it is a json.RawMessage; nil sends none
	// Unready takes an answer of 503 for one, too: that of a server which says why it is not
	// ready.
	Unready bool
	// Warned gets the warnings of the answer, those of a refusal too; nil for nobody.
	Warned func(warnings []string)
}

// Do calls the server and decodes its answer, as JSON, into a value unless that is nil.
func (c *Client) Do(ctx context.Context, in Request, into any) (warnings []string, err error) {
	response, err := c.Send(ctx, in)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, c.Unreachable(ctx, in, true, err)
	}
	if into != nil {
		if err := json.Unmarshal(body, into); err != nil {
			return nil, c.foreign(in, response, body)
		}
	}
	return warningsOf(response.Header), nil
}

// Open calls the server and returns its answer before the body is read. Reading the body fails
// with an error that begins with what, if the connection ends early. The context bounds the
// reading, too.
func (c *Client) Open(ctx context.Context, in Request, what string) (*http.Response, error) {
	response, err := c.Send(ctx, in)
	if err != nil {
		return nil, err
	}
	response.Body = &bodyReader{response.Body, func(err error) error {
		return fmt.Errorf("%s ended early: %w", what, c.Unreachable(ctx, in, true, err))
	}}
	return response, nil
}

// A bodyReader explains why a body ended early.
type bodyReader struct {
	io.ReadCloser
	explain func(error) error
}

// Read implements io.Reader.
func (b *bodyReader) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF { //nolint:errorlint // EOF is never wrapped
		err = b.explain(err)
	}
	return n, err
}

// Send calls the server and returns a successful answer before its body is read. If the
// server answers the call only on its socket, Send calls it there.
func (c *Client) Send(ctx context.Context, in Request) (*http.Response, error) {
	response, err := c.sendPatiently(ctx, in)
	if private := (*privateError)(nil); errors.As(err, &private) {
		return c.sendPrivate(ctx, in, private)
	}
	return response, err
}

// askAgain is the pause between two attempts to connect to a server that refuses
// connections.
const askAgain = 100 * time.Millisecond

// sendPatiently sends to a server that may still be starting: if it refuses the
// connection, or answers that it has not read its store yet, sendPatiently tries again
// until the client's patience or ctx ends.
func (c *Client) sendPatiently(ctx context.Context, in Request) (*http.Response, error) {
	var refused error // the last refusal, which says more than that the time is up
	for began := time.Now(); ; {
		response, err := c.sendBy(ctx, c.http, in, "")
		if refused != nil && endedBefore(err) {
			return nil, refused
		}
		silent := errors.Is(err, syscall.ECONNREFUSED)
		if !silent && !apierrors.HasStatusCause(err, refusal.CauseStarting) || time.Since(began) >= c.patience {
			return response, err
		}
		refused = err
		if silent {
			c.waiting()
		}
		select {
		case <-ctx.Done():
			return nil, refused
		case <-time.After(askAgain):
		}
	}
}

// If id is not empty, only the server with that id accepts the request.
func (c *Client) sendBy(ctx context.Context, httpClient *http.Client, in Request, id string) (*http.Response, error) {
	token, err := c.tokens(ctx, "")
	if err != nil {
		return nil, err
	}
	response, err := c.sendAs(ctx, httpClient, in, id, token)
	if !apierrors.IsUnauthorized(err) || token == "" {
		return response, err
	}
	another, failed := c.tokens(ctx, token)
	if failed != nil || another == token {
		return response, cmp.Or(failed, err)
	}
	return c.sendAs(ctx, httpClient, in, id, another)
}

// sendAs is sendBy with a token, empty for none.
func (c *Client) sendAs(ctx context.Context, httpClient *http.Client, in Request, id, token string) (*http.Response, error) {
	var sent atomic.Bool
	trace := &httptrace.ClientTrace{WroteHeaders: func() { sent.Store(true) }}
	r, err := c.request(httptrace.WithClientTrace(ctx, trace), in)
	if err != nil {
		return nil, err
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	if id != "" {
		r.Header.Set(socket.ServerHeader, id)
	}
	response, err := httpClient.Do(r)
	if err != nil {
		return nil, c.Unreachable(ctx, in, sent.Load(), err)
	}
	if in.Warned != nil {
		in.Warned(warningsOf(response.Header))
	}
	if response.StatusCode >= 200 && response.StatusCode <= 299 || in.Unready && response.StatusCode == http.StatusServiceUnavailable {
		return response, nil
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, c.Unreachable(ctx, in, sent.Load(), err)
	}
	return nil, asPrivate(response, c.refused(in, response, body))
}

func (c *Client) request(ctx context.Context, in Request) (*http.Request, error) {
	var body io.Reader
	if in.Body != nil {
		text, encoded := in.Body.(json.RawMessage)
		if !encoded {
			var err error
			if text, err = json.Marshal(in.Body); err != nil {
				return nil, fmt.Errorf("encode the body of %s %s: %w", in.Method, in.Path, err)
			}
		}
		body = bytes.NewReader(text)
	}
	target := c.server.String() + in.Path
	if len(in.Query) > 0 {
		target += "?" + in.Query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, in.Method, target, body)
	if err != nil {
		return nil, err
	}
	if in.Body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("User-Agent", c.userAgent)
	return r, nil
}
