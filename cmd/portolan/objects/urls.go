package objects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// The bounds of a file that is fetched: the store takes less in one change.
const (
	maxFetched   = 32 << 20
	maxRedirects = 5
	fetchTimeout = 30 * time.Second
)

// isURL says whether an argument of -f is the address of a file, and not its path.
func isURL(name string) bool { return strings.Contains(name, "://") }

// shownURL returns a URL as it may be printed: without a password.
func shownURL(name string) string {
	if u, err := url.Parse(name); err == nil && u.User != nil {
		return u.Redacted()
	}
	return name
}

// fetch reads a file by HTTP or HTTPS.
func fetch(ctx context.Context, name string) ([]byte, error) {
	u, err := url.Parse(name)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https"}, u.Scheme) {
		return nil, errors.New("is no URL of a file: give http://HOST/PATH or https://HOST/PATH")
	}
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, name, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/yaml, application/json, text/plain, */*")
	by := &http.Client{CheckRedirect: checkRedirect}
	defer by.CloseIdleConnections()
	answer, err := by.Do(request)
	if err != nil {
		return nil, explainFetch(err)
	}
	defer func() { _ = answer.Body.Close() }()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the answer is %s", answer.Status)
	}
	if kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); kind == "text/html" {
		return nil, errors.New("the answer is a web page, and no file with objects: give the URL of the file itself")
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxFetched+1))
	switch {
	case err != nil:
		return nil, explainFetch(err)
	case len(text) > maxFetched:
		return nil, fmt.Errorf("is larger than %d MiB", maxFetched>>20)
	}
	return text, nil
}

func checkRedirect(to *http.Request, before []*http.Request) error {
	switch {
	case len(before) > maxRedirects:
		return fmt.Errorf("there are more than %d redirects", maxRedirects)
	case before[len(before)-1].URL.Scheme == "https" && to.URL.Scheme != "https":
		return fmt.Errorf("it leads from https to %s, which anybody on the way can change", to.URL.Redacted())
	}
	return nil
}

// explainFetch leaves out of an error what the message says already, and says how long was waited.
func explainFetch(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("there is no whole answer within %s", fetchTimeout)
	}
	var of *url.Error
	if errors.As(err, &of) {
		return of.Err
	}
	return err
}
