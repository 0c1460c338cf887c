package rest

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"golang.org/x/sync/semaphore"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// Limits of the memory for all request bodies together. A body keeps its share until its
// request is answered. Small bodies have a share of their own, so that large ones do not
// delay them.
const (
	freeBody   = 64 << 10  // of each body, before it takes from readBudget
	readBudget = 128 << 20 // bytes of larger bodies
	smallCost  = 4 << 20   // the most that decoding a small body costs
	smallCosts = 128 << 20 // for all small bodies together
	largeCosts = 512 << 20 // for all other bodies together
	jsonCost   = 256       // bytes of memory to decode a value
	yamlCost   = 512
	budgetWait = 10 * time.Second
)

// budget bounds the memory for bodies.
type budget struct{ read, small, large *semaphore.Weighted }

func newBudget() *budget {
	return &budget{
		read: semaphore.NewWeighted(readBudget), small: semaphore.NewWeighted(smallCosts), large: semaphore.NewWeighted(largeCosts),
	}
}

// take takes n of a budget until the request is answered.
func take(c *call, of *semaphore.Weighted, n int64) error {
	wait, cancel := context.WithTimeout(c.r.Context(), budgetWait)
	defer cancel()
	if err := of.Acquire(wait, n); err != nil {
		if err := c.r.Context().Err(); err != nil {
			return err
		}
		return tooMany("other requests hold the memory that there is for request bodies: try again, or send less at a time")
	}
	c.releases = append(c.releases, func() { of.Release(n) })
	return nil
}

// A body must keep coming, so that a silent client does not hold a share for long.
const (
	bodyGrace = 3 * time.Second // for a body to begin, and to make up for a pause
	bodyRate  = 256 << 10       // bytes a second that it must reach beyond that
)

// minRateReader reads a body, and fails if it comes too slowly.
type minRateReader struct {
	io.Reader
	c     *call
	since time.Time
	read  int
}

// Read implements io.Reader.
func (p *minRateReader) Read(into []byte) (int, error) {
	due := p.since.Add(bodyGrace + time.Duration(p.read)*time.Second/bodyRate)
	_ = http.NewResponseController(p.c.w).SetReadDeadline(due) // a connection that does not support deadlines has none
	n, err := p.Reader.Read(into)
	p.read += n
	return n, err
}

// readAll reads a body within the budget.
func (b *budget) readAll(c *call) ([]byte, error) {
	length := c.r.ContentLength
	if length > maxBody {
		return nil, &http.MaxBytesError{Limit: maxBody}
	}
	defer func() { _ = http.NewResponseController(c.w).SetReadDeadline(time.Time{}) }()
	body := &minRateReader{Reader: http.MaxBytesReader(c.w, c.r.Body, maxBody), c: c, since: time.Now()}
	begin, err := io.ReadAll(io.LimitReader(body, freeBody))
	if err != nil || len(begin) < freeBody {
		return begin, err
	}
	if length < 0 {
		length = maxBody
	}
	if err := take(c, b.read, length); err != nil {
		return nil, err
	}
	body.since = time.Now()
	rest, err := io.ReadAll(body)
	return append(begin, rest...), err
}

// decode takes the cost of decoding a body from the budget.
func (b *budget) decode(c *call, body []byte, isYAML bool) error {
	values := config.CountValues(body)
	cost := int64(len(body)) + int64(values)*jsonCost
	if isYAML {
		cost = int64(len(body)) + int64(values)*yamlCost
	}
	switch {
	case cost <= smallCost:
		return take(c, b.small, cost)
	case values > config.MaxValues || cost > largeCosts:
		return refusal.New(http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, fmt.Sprintf(
			"the request body holds some %d values: send %d at most in JSON, and %d in YAML, or the objects in several requests",
			values, config.MaxValues-maxBody/jsonCost, (largeCosts-maxBody)/yamlCost))
	default:
		return take(c, b.large, cost)
	}
}
