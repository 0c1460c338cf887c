package jwks

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
	"strings"
	"time"
)

const (
	// fetchTime bounds a fetch, including discovery and all redirects.
	fetchTime = 10 * time.Second
	// maxBytes bounds each document.
	maxBytes = 512 << 10
	// maxRedirects is how many redirects of a source are followed.
	maxRedirects = 3
	// discoveryPath is where an issuer publishes the address of its keys.
	discoveryPath = "/.well-known/openid-configuration"
)

// Source says where to fetch keys. It is comparable.
type Source struct {
	// URL is the address of the keys. If Discover is set, it is the issuer, whose document
	// names the address of the keys.
	URL      string
	Discover bool
	// CA holds the PEM certificates of the authorities that may sign the source's
	// certificate; empty means the system's.
	CA string
}

// fetch fetches the keys of a source once.
func fetch(ctx context.Context, source Source) (*Keys, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	client, err := newClient(source.CA)
	if err != nil {
		return nil, err
	}
	defer client.CloseIdleConnections()
	from := source.URL
	if source.Discover {
		if from, err = discover(ctx, client, source.URL); err != nil {
			return nil, err
		}
	}
	text, err := get(ctx, client, from)
	if err != nil {
		return nil, err
	}
	keys, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	return keys, nil
}

// discover asks an issuer where its keys are.
func discover(ctx context.Context, client *http.Client, issuer string) (string, error) {
	at := strings.TrimSuffix(issuer, "/") + discoveryPath
	text, err := get(ctx, client, at)
	if err != nil {
		return "", err
	}
	var document struct {
		Issuer string `json:"issuer"`
		Keys   string `json:"jwks_uri"`
	}
	if err := json.Unmarshal(text, &document); err != nil {
		return "", fmt.Errorf("%s: it is no JSON: %w", at, err)
	}
	if document.Issuer != issuer {
		return "", fmt.Errorf("%s: it is of the issuer %q", at, document.Issuer)
	}
	if pointsToThisMachine(issuer, document.Keys) {
		return "", fmt.Errorf("%s: it sends to %s, which is on this machine", at, document.Keys)
	}
	return document.Keys, nil
}

// pointsToThisMachine says whether a source on another machine points to a URL on this one.
func pointsToThisMachine(from, to string) bool {
	a, errA := url.Parse(from)
	b, errB := url.Parse(to)
	return errA != nil || errB != nil || isLoopback(b.Hostname()) && !isLoopback(a.Hostname())
}

// get fetches a document of at most maxBytes.
func get(ctx context.Context, client *http.Client, from string) ([]byte, error) {
	if err := CheckURL(from); err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: it answers %s", from, response.Status)
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxBytes+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", from, err)
	case len(text) > maxBytes:
		return nil, fmt.Errorf("%s: it has more than %d bytes", from, maxBytes)
	}
	return text, nil
}

// newClient returns a client that only follows URLs that pass CheckURL.
func newClient(authorities string) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if authorities != "" {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(authorities)) {
			return nil, errors.New("its authorities are no certificates in PEM")
		}
	}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, DisableKeepAlives: true,
			TLSHandshakeTimeout: fetchTime, ResponseHeaderTimeout: fetchTime, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if len(via) > maxRedirects {
				return fmt.Errorf("it redirects more than %d times", maxRedirects)
			}
			if err := CheckURL(r.URL.String()); err != nil {
				return err
			}
			if pointsToThisMachine(via[0].URL.String(), r.URL.String()) {
				return fmt.Errorf("it redirects to %s, which is on this machine", r.URL.Host)
			}
			return nil
		},
	}, nil
}
