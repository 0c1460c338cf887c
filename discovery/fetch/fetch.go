// Package fetch gets documents by HTTP that objects name by their URL: never more than a bound of bytes
// and of time, and never from where a redirect may not lead.
package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/portolan-mesh/portolan/storage/keyset"
)

// MaxRedirects is how many redirects are followed.
const MaxRedirects = 3

// Options say what is fetched.
type Options struct {
	// Check says why a URL must not be asked, with its name, nil if it may be. first is what was asked
	// for, and the same as to but for redirects.
	Check func(first, to *url.URL) error
	// Accept is the header of the requests.
	Accept string
	// Timeout bounds each part of a fetch; the context of Get bounds all of it.
	Timeout time.Duration
	// MaxBytes bounds a document. TooLarge says what has more, such as "more than 16 MiB".
	MaxBytes int64
	TooLarge string
	// CA holds the PEM certificates of the authorities that may sign the certificate of a web server;
	// empty means the system's.
	CA string
}

// Client fetches documents.
type Client struct {
	options Options
	http    *http.Client
}

// NewClient returns a Client. It fails if CA has no certificates.
func NewClient(o Options) (*Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(o.CA)) {
			return nil, errors.New("its authorities are no certificates in PEM")
		}
	}
	return &Client{o, &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true,
			TLSHandshakeTimeout: o.Timeout, ResponseHeaderTimeout: o.Timeout, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			first, to := via[0].URL, r.URL
			if len(via) > MaxRedirects {
				return fmt.Errorf("it redirects more than %d times", MaxRedirects)
			}
			if err := o.Check(first, to); err != nil {
				return err
			}
			if EntersThisMachine(first, to) {
				return fmt.Errorf("it redirects to %s, which is on this machine", to.Host)
			}
			return nil
		},
	}}, nil
}

// EntersThisMachine says whether a URL on another machine leads to one on this machine.
func EntersThisMachine(from, to *url.URL) bool {
	return keyset.OnThisMachine(to.Hostname()) && !keyset.OnThisMachine(from.Hostname())
}

// Get fetches a document once. Its errors name the URL.
func (c *Client) Get(ctx context.Context, from string) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := c.options.Check(r.URL, r.URL); err != nil {
		return nil, nil, err
	}
	content, header, err := c.do(r)
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err // it names the URL again
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", from, err)
	}
	return content, header, nil
}

func (c *Client) do(r *http.Request) ([]byte, http.Header, error) {
	r.Header.Set("Accept", c.options.Accept)
	response, err := c.http.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("it answers %s", response.Status)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, c.options.MaxBytes+1))
	if err == nil && int64(len(content)) > c.options.MaxBytes {
		return nil, nil, fmt.Errorf("it has %s", c.options.TooLarge)
	}
	return content, response.Header, err
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }
