package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// pace is the time between two requests of a counter.
const pace = 4 * time.Millisecond

// counter sends requests to the service through one proxy, one after the other, and counts
// which version answers them.
type counter struct {
	name   string // name of the proxy
	url    string
	client *http.Client

	mu     sync.Mutex // guards what follows
	total  tally
	reason string // reason of the first failure
}

// tally counts answers by version.
type tally struct {
	versions map[string]int
	failed   int
}

func newCounter(name string, port int) *counter {
	return &counter{
		name: name, url: fmt.Sprintf("http://127.0.0.1:%d/", port),
		client: &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}},
		total:  tally{versions: map[string]int{}},
	}
}

// run sends requests until ctx ends.
func (c *counter) run(ctx context.Context) {
	defer c.client.CloseIdleConnections()
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		version, err := c.request(ctx)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		if err == nil {
			c.total.versions[version]++
		} else if c.total.failed++; c.reason == "" {
			c.reason = err.Error()
		}
		c.mu.Unlock()
	}
}

// request sends a request and returns the version that answered.
func (c *counter) request(ctx context.Context) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
	if err != nil {
		return "", err
	}
	r.Host = serviceHost
	response, err := c.client.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	if err != nil {
		return "", err
	}
	version, ok := strings.CutPrefix(strings.TrimSpace(string(body)), "reviews ")
	if response.StatusCode != http.StatusOK || !ok {
		return "", fmt.Errorf("%s: %s", response.Status, strings.TrimSpace(string(body)))
	}
	return version, nil
}

// sum returns the tally since the counter started, and the reason of the first failure.
func (c *counter) sum() (tally, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return tally{versions: maps.Clone(c.total.versions), failed: c.total.failed}, c.reason
}

// since returns the difference from an earlier tally.
func (t tally) since(earlier tally) tally {
	out := tally{versions: map[string]int{}, failed: t.failed - earlier.failed}
	for version, n := range t.versions {
		if n -= earlier.versions[version]; n > 0 {
			out.versions[version] = n
		}
	}
	return out
}

func (t tally) answered() int {
	n := 0
	for _, count := range t.versions {
		n += count
	}
	return n
}

// share returns the share of a version, in percent.
func (t tally) share(version string) float64 {
	return 100 * float64(t.versions[version]) / float64(max(t.answered(), 1))
}

// String formats a tally, as in "1523 requests  v1 90.3 %  v2 9.7 %  0 failed".
func (t tally) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%5d requests", t.answered()+t.failed)
	for _, version := range slices.Sorted(maps.Keys(t.versions)) {
		fmt.Fprintf(&b, "   %s %4.1f %%", version, t.share(version))
	}
	fmt.Fprintf(&b, "   %d failed", t.failed)
	return b.String()
}
