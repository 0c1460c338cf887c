package consul

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/portolan-mesh/portolan/storage/retry"
)

const (
	// waitTime is how long Consul holds a blocking query if nothing changes. Consul adds up to
	// a sixteenth.
	// https://developer.hashicorp.com/consul/api-docs/features/blocking
	waitTime = 5 * time.Minute
	// answerTime is how long an answer may take beyond its wait. A probe goes out every
	// beatTime and may take probeTime, so the registry notices within eight seconds that
	// Consul hangs.
	answerTime = 20 * time.Second
	probeTime  = 5 * time.Second
	beatTime   = 3 * time.Second
	// doubtBeats is the number of beats after which the registry reads hidden entries again.
	// Consul does not report when it shows them again.
	doubtBeats = 20
	// The spacings are the least times between two answers of one query: for a service or
	// node, for a list, and for the checks in a state.
	spacing       = 50 * time.Millisecond
	listSpacing   = 250 * time.Millisecond
	checksSpacing = 100 * time.Millisecond
	// entryTime is the pause per entry of an answer, so that queries with large answers are
	// sent less often.
	entryTime = 20 * time.Microsecond
	// The pauses while Consul is away, and those of a single query that fails while Consul
	// answers.
	minPause, maxPause         = 50 * time.Millisecond, 500 * time.Millisecond
	firstOwnPause, maxOwnPause = 200 * time.Millisecond, 30 * time.Second
)

// question describes one query of the catalogue.
type question[T any] struct {
	// kind names the query in metrics; name is the service or node that it asks for.
	kind, name string
	spacing    time.Duration
	// entries counts the entries of an answer; nil if there are few.
	entries func(T) int
	// limit is how long an answer may take; 0 means answerTime.
	limit time.Duration
	// steady is true if the index of the query never goes back unless Consul loses its data.
	// known is the least index that a first answer may have.
	steady bool
	known  uint64
	ask    func(*api.QueryOptions) (T, *api.QueryMeta, error)
}

func (q question[T]) String() string {
	if q.name == "" {
		return q.kind
	}
	return q.kind + " " + q.name
}

var errNoLeader = errors.New("there is no leader")

// request sends a query once. If index is not 0, the query waits for a change after it.
func request[T any](ctx context.Context, d *datacenter, q question[T], index uint64) (answer T, meta *api.QueryMeta, err error) {
	limit := cmp.Or(q.limit, answerTime)
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

// inWords makes an error of Consul readable for an operator.
func inWords(err error) error {
	var status api.StatusError
	if errors.As(err, &status) && status.Code == http.StatusForbidden {
		return fmt.Errorf("the token is refused: %s", status.Body)
	}
	return err
}

// answerInfo describes an answer: its round, and whether the query was sent without an index,
// as the first one is and the first after a failure.
type answerInfo struct {
	round int
	fresh bool
}

// watch repeats a query, each time for changes after the last answer, and passes the answers
// to take until ctx ends. When Consul loses its data, a new round begins without an index.
func watch[T any](ctx context.Context, d *datacenter, q question[T], take func(answer T, meta *api.QueryMeta, how answerInfo)) {
	d.queries.Add(1)
	defer d.queries.Add(-1)
	defer d.clearFailure(q.String())
	index, least := uint64(0), q.known
	var last time.Time // when the last answer came
	failed, seen := newFailures(), 0
	for ctx.Err() == nil {
		round, number, end := d.round(ctx)
		if number != seen {
			index, least, seen = 0, 0, number
		}
		asked := time.Now()
		answer, meta, err := request(round, d, q, index)
		ended := round.Err() != nil
		end()
		switch {
		case ctx.Err() != nil:
			return
		case ended: // a new round has begun
		case err != nil:
			index = 0
			d.addFailure(q.String(), err)
			_ = retry.Sleep(ctx, failed.next())
			d.recover(ctx)
		case d.mustProbe():
			index = 0
			d.recover(ctx)
		case q.steady && meta.LastIndex < least:
			d.reset(number, fmt.Sprintf("the index of %s went back from %d to %d", q, least, meta.LastIndex))
		case index > 0 && meta.LastIndex == index:
			if time.Since(asked) < waitTime {
				// Consul answers early when a snapshot is restored. A query with this index
				// would wait until the restored Consul reaches it again, so query without an
				// index.
				// https://github.com/hashicorp/consul/pull/2675
				index = 0
			}
			_ = retry.Sleep(ctx, q.spacing)
		default:
			failed.reset()
			d.clearFailure(q.String())
			fresh := index == 0
			// A query with index 0 would not block.
			// https://developer.hashicorp.com/consul/api-docs/features/blocking#implementation-details
			index, least = max(1, meta.LastIndex), meta.LastIndex
			take(answer, meta, answerInfo{number, fresh})
			rest := q.spacing
			if q.entries != nil {
				rest = max(rest, time.Duration(q.entries(answer))*entryTime)
			}
			_ = retry.Sleep(ctx, rest-time.Since(last))
			last = time.Now()
		}
	}
}

func queryUntilAnswered[T any](ctx context.Context, d *datacenter, q question[T]) (answer T, meta *api.QueryMeta, err error) {
	failed := newFailures()
	for {
		d.recover(ctx)
		if ctx.Err() != nil {
			return answer, nil, ctx.Err()
		}
		if answer, meta, err = request(ctx, d, q, 0); err == nil {
			d.clearFailure(q.String())
			return answer, meta, nil
		}
		d.addFailure(q.String(), err)
		_ = retry.Sleep(ctx, failed.next())
	}
}

// failures delays a query after failures in a row. The first is mostly the fault of Consul and
// not of the query, so only later ones delay it.
type failures struct {
	failed  bool
	backoff *retry.Backoff
}

func newFailures() *failures { return &failures{backoff: retry.New(firstOwnPause, maxOwnPause)} }

// next returns how long the query waits after one more failure.
func (f *failures) next() time.Duration {
	if !f.failed {
		f.failed = true
		return 0
	}
	return f.backoff.Next()
}

func (f *failures) reset() {
	f.failed = false
	f.backoff.Reset()
}
