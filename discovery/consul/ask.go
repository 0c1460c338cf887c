package consul

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/hashicorp/consul/api"
)

const (
	// waitTime is how long Consul holds a query that nothing answers; it adds up
	// to a sixteenth.
	waitTime = 5 * time.Minute
	// answerTime is how long an answer may take beside.
	answerTime = 20 * time.Second
	// spacing is how often one query is answered at most, listSpacing a list.
	spacing     = 50 * time.Millisecond
	listSpacing = 250 * time.Millisecond
	// The pauses while Consul is away, and of a query that fails by itself.
	minPause, maxPause = 50 * time.Millisecond, 500 * time.Millisecond
	maxOwnPause        = 30 * time.Second
)

// question is one query of the catalogue.
type question[T any] struct {
	// kind is the word for it in metrics, name that of its service or node.
	kind, name string
	spacing    time.Duration
	// steady says that its index never goes back as long as Consul has its data.
	steady bool
	ask    func(*api.QueryOptions) (T, *api.QueryMeta, error)
}

func (q question[T]) String() string {
	if q.name == "" {
		return q.kind
	}
	return q.kind + " " + q.name
}

var errNoLeader = errors.New("there is no leader")

// request asks once, for what comes after an index; 0 asks for what there is.
func request[T any](ctx context.Context, d *datacenter, q question[T], index uint64) (answer T, meta *api.QueryMeta, err error) {
	limit := answerTime
	if index > 0 {
		limit += waitTime + waitTime/16
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	o := &api.QueryOptions{Datacenter: d.name, WaitIndex: index, WaitTime: waitTime}
	if d.r.o.Token != nil {
		if o.Token, err = d.r.o.Token(); err != nil {
			return answer, nil, fmt.Errorf("the token: %w", err)
		}
	}
	d.r.metrics.requests.WithLabelValues(q.kind).Inc()
	answer, meta, err = q.ask(o.WithContext(ctx))
	if err == nil && !meta.KnownLeader && meta.QueryBackend != api.QueryBackendStreaming {
		err = errNoLeader
	}
	return answer, meta, err
}

// inWords is an error of Consul for an operator.
func inWords(err error) error {
	var status api.StatusError
	if errors.As(err, &status) && status.Code == http.StatusForbidden {
		return fmt.Errorf("the token is refused: %s", status.Body)
	}
	return err
}

// watch asks again and again, each time for what comes after the last answer,
// and hands over answers until ctx ends. A round ends when Consul has lost its
// data, and all is asked anew.
func watch[T any](ctx context.Context, d *datacenter, q question[T], take func(answer T, meta *api.QueryMeta, round int)) {
	d.queries.Add(1)
	defer d.queries.Add(-1)
	defer d.forget(q.String())
	var index uint64
	var last time.Time // of an answer
	failures, seen := 0, 0
	for ctx.Err() == nil {
		round, number, end := d.round(ctx)
		if number != seen {
			index, seen = 0, number
		}
		answer, meta, err := request(round, d, q, index)
		ended := round.Err() != nil
		end()
		switch {
		case ctx.Err() != nil:
			return
		case ended: // all are asked anew
		case err != nil:
			index = 0
			failures++
			d.fail(q.String(), err)
			pause(ctx, ownPause(failures))
			d.recover(ctx)
		case d.suspect():
			index = 0
			d.recover(ctx)
		case q.steady && meta.LastIndex < index:
			d.reset(fmt.Sprintf("the index of %s went back from %d to %d", q, index, meta.LastIndex))
		case index > 0 && meta.LastIndex == index: // nothing happened in all that time
			pause(ctx, q.spacing)
		default:
			failures = 0
			d.forget(q.String())
			index = max(1, meta.LastIndex)
			take(answer, meta, number)
			pause(ctx, q.spacing-time.Since(last))
			last = time.Now()
		}
	}
}

// once asks until there is an answer, or ctx ends.
func once[T any](ctx context.Context, d *datacenter, q question[T]) (answer T, meta *api.QueryMeta, err error) {
	for failures := 1; ; failures++ {
		d.recover(ctx)
		if ctx.Err() != nil {
			return answer, nil, ctx.Err()
		}
		if answer, meta, err = request(ctx, d, q, 0); err == nil {
			d.forget(q.String())
			return answer, meta, nil
		}
		d.fail(q.String(), err)
		pause(ctx, ownPause(failures))
	}
}

// ownPause is how long a query pauses that has failed so often: not at all when
// it fails first, since that is mostly Consul and not the query.
func ownPause(failures int) time.Duration {
	if failures <= 1 {
		return 0
	}
	return jitter(min(maxOwnPause, minPause<<min(failures, 16)))
}

// jitter is between three quarters and five quarters of a time.
func jitter(t time.Duration) time.Duration { return t*3/4 + rand.N(t/2+1) }

// pause waits, unless ctx ends.
func pause(ctx context.Context, t time.Duration) {
	if t <= 0 {
		return
	}
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
