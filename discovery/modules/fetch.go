package modules

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/portolan-mesh/portolan/storage/keyset"
	"github.com/portolan-mesh/portolan/storage/wasm"
)

const (
	// MaxBytes bounds a module.
	MaxBytes = 16 << 20
	// fetchTime bounds a fetch, including all redirects.
	fetchTime = 15 * time.Second
	// maxRedirects is how many redirects are followed.
	maxRedirects = 3
)

// newClient returns a client that never goes from https to http, nor from another machine to this one.
func newClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}, DisableKeepAlives: true,
			TLSHandshakeTimeout: fetchTime, ResponseHeaderTimeout: fetchTime, MaxResponseHeaderBytes: 64 << 10,
		},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			from, to := via[0].URL, r.URL
			switch {
			case len(via) > maxRedirects:
				return fmt.Errorf("it redirects more than %d times", maxRedirects)
			case to.Scheme != "https" && (to.Scheme != "http" || from.Scheme != "http"):
				return fmt.Errorf("it redirects to %s", to.Redacted())
			case keyset.OnThisMachine(to.Hostname()) && !keyset.OnThisMachine(from.Hostname()):
				return fmt.Errorf("it redirects to %s, which is on this machine", to.Host)
			}
			return nil
		},
	}
}

// fetch fetches a module once, and verifies its sum. The errors name the URL.
func fetch(ctx context.Context, client *http.Client, source wasm.Source) (*Module, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	content, err := get(ctx, client, source.URL)
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		err = wrapped.Err // it names the URL again
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", source.URL, err)
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != source.Sum {
		return nil, fmt.Errorf("%s: its content has the sum %x, and sha256 is %s: correct the one or the other", source.URL, sum, source.Sum)
	}
	return &Module{Sum: source.Sum, Bytes: content}, nil
}

func get(ctx context.Context, client *http.Client, from string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/wasm, */*")
	response, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("it answers %s", response.Status)
	}
	content, err := io.ReadAll(io.LimitReader(response.Body, MaxBytes+1))
	if err == nil && len(content) > MaxBytes {
		return nil, fmt.Errorf("it has more than %d MiB", MaxBytes>>20)
	}
	return content, err
}
