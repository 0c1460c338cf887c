package jwks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/discovery/fetch"
)

const (
	// fetchTime bounds a fetch, including discovery and all redirects.
	fetchTime = 10 * time.Second
	// maxBytes bounds each document.
	maxBytes = 512 << 10
	// discoveryPath is where an issuer publishes the address of its keys.
	discoveryPath = "/.well-known/openid-configuration"
)

// Source says where to fetch keys. It is comparable.
type Source struct {
	// URL is the address of the keys. If Discover is set, it is the issuer, whose document
	// names the address of the keys.
	URL      string
	Discover bool
	// Plaintext: http is taken from other machines, too, where URL has it.
	Plaintext bool
	// Timeout bounds a fetch further; 0 means only the limit of all fetches.
	Timeout time.Duration
	// CA holds the PEM certificates of the authorities that may sign the source's
	// certificate; empty means the system's.
	CA string
}

// limit is how long a fetch may take.
func (s Source) limit() time.Duration {
	if s.Timeout > 0 {
		return min(s.Timeout, fetchTime)
	}
	return fetchTime
}

// check returns why the source may not lead to a URL.
func (s Source) check(text string) error {
	if s.Plaintext && strings.HasPrefix(s.URL, "http://") && checkForm(text) == nil && strings.HasPrefix(text, "http://") {
		return nil
	}
	return CheckURL(text)
}

// fetchKeys fetches the keys of a source once. It also returns how long the source says that they
// stay fresh, negative if it says nothing.
func fetchKeys(ctx context.Context, source Source) (*Keys, time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, source.limit())
	defer cancel()
	client, err := newClient(source)
	if err != nil {
		return nil, 0, err
	}
	defer client.Close()
	from := source.URL
	if source.Discover {
		if from, err = discover(ctx, client, source); err != nil {
			return nil, 0, err
		}
	}
	text, header, err := client.Get(ctx, from)
	if err != nil {
		return nil, 0, err
	}
	keys, err := Parse(text)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", from, err)
	}
	return keys, maxAge(header), nil
}

// maxAge returns how long a response stays fresh (RFC 9111, section 5.2.2), negative if it does
// not say so.
func maxAge(header http.Header) time.Duration {
	age := time.Duration(-1)
	for directive := range strings.SplitSeq(strings.Join(header.Values("Cache-Control"), ","), ",") {
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(directive)), "=")
		switch name {
		case "no-store", "no-cache":
			return 0
		case "max-age":
			if seconds, err := strconv.ParseUint(strings.Trim(value, `"`), 10, 31); err == nil {
				age = time.Duration(seconds) * time.Second
			}
		}
	}
	return age
}

// discover asks an issuer where its keys are.
func discover(ctx context.Context, client *fetch.Client, source Source) (string, error) {
	issuer := source.URL
	at := strings.TrimSuffix(issuer, "/") + discoveryPath
	text, _, err := client.Get(ctx, at)
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
	if leadsToThisMachine(issuer, document.Keys) {
		return "", fmt.Errorf("%s: it sends to %s, which is on this machine", at, document.Keys)
	}
	return document.Keys, nil
}

// leadsToThisMachine says whether a source on another machine leads to a URL on this one, or to none.
func leadsToThisMachine(from, to string) bool {
	a, errA := url.Parse(from)
	b, errB := url.Parse(to)
	return errA != nil || errB != nil || fetch.EntersThisMachine(a, b)
}

// newClient returns a client that only follows URLs that the source may lead to.
func newClient(source Source) (*fetch.Client, error) {
	return fetch.NewClient(fetch.Options{
		Check:  func(_, to *url.URL) error { return source.check(to.String()) },
		Accept: "application/json", Timeout: fetchTime, MaxBytes: maxBytes, TooLarge: fmt.Sprintf("more than %d bytes", maxBytes), CA: source.CA,
	})
}
