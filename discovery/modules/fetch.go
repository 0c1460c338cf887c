package modules

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"time"

	"github.com/portolan-mesh/portolan/discovery/fetch"
	"github.com/portolan-mesh/portolan/storage/wasm"
)

const (
	// MaxBytes bounds a module.
	MaxBytes = 16 << 20
	// fetchTime bounds a fetch, including all redirects.
	fetchTime = 15 * time.Second
)

// newClient returns a client that never goes from https to http, nor from another machine to this one.
func newClient() (*fetch.Client, error) {
	return fetch.NewClient(fetch.Options{
		Check: func(first, to *url.URL) error {
			if to.Scheme != "https" && (to.Scheme != "http" || first.Scheme != "http") {
				return fmt.Errorf("it redirects to %s", to.Redacted())
			}
			return nil
		},
		Accept: "application/wasm, */*", Timeout: fetchTime, MaxBytes: MaxBytes, TooLarge: fmt.Sprintf("more than %d MiB", MaxBytes>>20),
	})
}

// get fetches a module once, and verifies its sum. The errors name the URL.
func get(ctx context.Context, client *fetch.Client, source wasm.Source) (*Module, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	content, _, err := client.Get(ctx, source.URL)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != source.Sum {
		return nil, fmt.Errorf("%s: its content has the sum %x, and sha256 is %s: correct the one or the other", source.URL, sum, source.Sum)
	}
	return &Module{Sum: source.Sum, Bytes: content}, nil
}
