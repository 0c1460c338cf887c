package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"
)

const serviceHost = "reviews.shop.example"

// counter sends requests to the service through one proxy, one after the other, and counts
// which version answers them.
type counter struct {
	name, url string

	mu    sync.Mutex // guards total
	total tally
}

// tally counts requests.
type tally struct {
	requests, v1, v2, failed int
	reason                   string // of the first failure
}

// run sends requests until ctx ends.
func (c *counter) run(ctx context.Context) {
	for range time.Tick(4 * time.Millisecond) {
		answer, err := get(ctx, serviceHost, c.url)
		if ctx.Err() != nil {
			return
		}
		c.mu.Lock()
		c.total.requests++
		switch {
		case answer == "reviews v1\n":
			c.total.v1++
		case answer == "reviews v2\n":
			c.total.v2++
		default:
			c.total.failed++
			c.total.reason = cmp.Or(c.total.reason, fmt.Sprint(cmp.Or(err, errors.New(answer))))
		}
		c.mu.Unlock()
	}
}

// since returns what was counted after an earlier tally.
func (c *counter) since(t tally) tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.total
	return tally{n.requests - t.requests, n.v1 - t.v1, n.v2 - t.v2, n.failed - t.failed, n.reason}
}

// percent returns the share of n in all requests.
func (t tally) percent(n int) float64 { return 100 * float64(n) / float64(max(t.requests, 1)) }

// String formats a tally, as in " 1523 requests   v1 90.3 %   v2  9.7 %   0 failed".
func (t tally) String() string {
	text := fmt.Sprintf("%5d requests   v1 %4.1f %%   v2 %4.1f %%   %d failed", t.requests, t.percent(t.v1), t.percent(t.v2), t.failed)
	if t.failed > 0 {
		text += " (" + t.reason + ")"
	}
	return text
}

// showTraffic waits for some more requests through each proxy, and shows how they were split.
// share is the percentage that v1 should have.
func (d *demo) showTraffic(share float64) {
	const sample = 500
	tolerance := 5 * math.Sqrt(share*(100-share)/sample) // five standard deviations
	var before []tally
	for _, c := range d.traffic {
		before = append(before, c.since(tally{}))
	}
	for i, c := range d.traffic {
		var more tally
		d.await("requests through the "+c.name, func() error {
			if more = c.since(before[i]); more.requests < sample {
				return fmt.Errorf("%s", more)
			}
			return nil
		})
		d.claim(more.failed == 0 && math.Abs(more.percent(more.v1)-share) < tolerance, "%s  %s", c.name, more)
	}
}

// client is for this machine, where answers come soon.
var client = &http.Client{Timeout: 10 * time.Second}

// get returns the body of a URL, which must answer 200. An empty host is that of the URL.
func get(ctx context.Context, host, url string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	r.Host = host
	response, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("GET %s: %s: %s", url, response.Status, body)
	}
	if err != nil {
		return "", err
	}
	return string(body), nil
}
