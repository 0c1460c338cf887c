package integration

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// request is a request through a proxy on a port of this machine.
type request struct {
	at     string // an address of its loopback; 127.0.0.1
	port   int
	host   string
	method string // GET
	path   string // "/"
	header map[string]string
}

// reply is the response; echo is empty if no upstream answered.
type reply struct {
	status   int
	location string
	header   http.Header
	body     string
	echo     echo
}

// String returns the upstream's name, or the status if none answered.
func (r reply) String() string {
	if r.echo.Upstream != "" {
		return r.echo.Upstream
	}
	return fmt.Sprint(r.status)
}

// errNoAnswer means that a request got no response.
var errNoAnswer = errors.New("no answer")

// clientOf returns an HTTP client for one scenario. It follows no redirects.
func clientOf(t testing.TB) *http.Client {
	transport := &http.Transport{MaxIdleConnsPerHost: 16, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{
		Transport:     transport,
		Timeout:       15 * time.Second,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// do sends a request.
func do(ctx context.Context, client *http.Client, q request) (reply, error) {
	method, path := q.method, q.path
	if method == "" {
		method = http.MethodGet
	}
	if path == "" {
		path = "/"
	}
	r, err := http.NewRequestWithContext(ctx, method, "http://"+net.JoinHostPort(cmp.Or(q.at, "127.0.0.1"), strconv.Itoa(q.port))+path, nil)
	if err != nil {
		return reply{}, err
	}
	r.Host = q.host
	for k, v := range q.header {
		r.Header.Set(k, v)
	}
	return answer(client, r)
}

// answer sends a request and reads the response.
func answer(client *http.Client, r *http.Request) (reply, error) {
	response, err := client.Do(r)
	if err != nil {
		return reply{}, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return reply{}, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	out := reply{status: response.StatusCode, location: response.Header.Get("Location"), header: response.Header, body: string(body)}
	if strings.HasPrefix(response.Header.Get("Content-Type"), "application/json") {
		_ = json.Unmarshal(body, &out.echo)
	}
	return out, nil
}

// send sends a request that must get a response.
func send(t testing.TB, q request) reply {
	t.Helper()
	out, err := do(t.Context(), clientOf(t), q)
	if err != nil {
		t.Fatalf("%s %s%s: %v", q.method, q.host, q.path, err)
	}
	return out
}

// awaitReply waits until the response to a request is want, by String.
func awaitReply(t testing.TB, q request, want string) {
	t.Helper()
	client := clientOf(t)
	eventually(t, fmt.Sprintf("%s%s on port %d answers %s", q.host, q.path, q.port, want), func() error {
		got, err := do(t.Context(), client, q)
		if err != nil {
			return err
		}
		if got.String() != want {
			return fmt.Errorf("it answers %s: %s", got, strings.TrimSpace(got.body))
		}
		return nil
	})
}

// awaitClosed waits until nothing listens on a port.
func awaitClosed(t testing.TB, port int) {
	t.Helper()
	eventually(t, fmt.Sprintf("port %d is closed", port), func() error {
		c, err := net.DialTimeout("tcp", local(port), time.Second)
		if err != nil {
			return nil
		}
		_ = c.Close()
		return errors.New("it takes connections")
	})
}

// greeting connects to a port and returns the greeting line, after it has checked the echo.
func greeting(ctx context.Context, port int) (string, error) {
	return greetingAt(ctx, "tcp", local(port))
}

// greetingAt is greeting at an address of any network.
func greetingAt(ctx context.Context, network, address string) (string, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	r := bufio.NewReader(c)
	name, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	if _, err := fmt.Fprintln(c, "hello"); err != nil {
		return "", err
	}
	if back, err := r.ReadString('\n'); err != nil || back != "hello\n" {
		return "", fmt.Errorf("sent hello, got %q: %w", back, err)
	}
	return strings.TrimSpace(name), nil
}

// awaitGreeting waits until a connection to a port reaches the TCP upstream of
// that name.
func awaitGreeting(t testing.TB, port int, want string) {
	t.Helper()
	eventually(t, fmt.Sprintf("port %d leads to %s", port, want), func() error {
		got, err := greeting(t.Context(), port)
		if err == nil && got != want {
			err = fmt.Errorf("it leads to %s", got)
		}
		return err
	})
}

// load sends requests until the test ends, and counts the responses.
type load struct {
	t    testing.TB
	name string
	stop func()

	mu       sync.Mutex
	counts   map[string]int // by String of the reply
	failures []string       // all but 200
}

// startLoad sends a request again and again, some 250 times a second.
func startLoad(t testing.TB, name string, q request) *load {
	t.Helper()
	l := &load{t: t, name: name, counts: map[string]int{}}
	client := clientOf(t)
	send := func(ctx context.Context) { l.send(ctx, client, q) }
	l.stop = atPace(t, send, send)
	return l
}

// atPace calls each function again and again, 8 ms after the call before at the earliest,
// until stop is called or the test ends.
func atPace(t testing.TB, functions ...func(context.Context)) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, call := range functions {
		running.Go(func() {
			pace := time.NewTicker(8 * time.Millisecond)
			defer pace.Stop()
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-pace.C:
					call(ctx)
				}
			}
		})
	}
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func (l *load) send(ctx context.Context, client *http.Client, q request) {
	got, err := do(ctx, client, q)
	l.count(ctx, got, err)
}

// count counts what a request got, unless the load has ended meanwhile.
func (l *load) count(ctx context.Context, got reply, err error) {
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		l.failures = append(l.failures, fmt.Sprintf("%s %v", time.Now().Format(time.TimeOnly), err))
	case got.status != http.StatusOK:
		l.failures = append(l.failures, fmt.Sprintf("%s %d %s", time.Now().Format(time.TimeOnly), got.status, got.body))
	default:
		l.counts[got.String()]++
	}
}

// snapshot returns the counts so far.
func (l *load) snapshot() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// sample waits for n more requests and returns the counts of their responses.
func (l *load) sample(n int) map[string]int {
	l.t.Helper()
	before := l.snapshot()
	out := map[string]int{}
	eventually(l.t, fmt.Sprintf("%d more requests of %s", n, l.name), func() error {
		clear(out)
		total := 0
		for name, count := range l.snapshot() {
			if d := count - before[name]; d > 0 {
				out[name] = d
				total += d
			}
		}
		if total < n {
			return fmt.Errorf("%d so far: %v, failures %v", total, out, l.failed())
		}
		return nil
	})
	return out
}

// failed returns the responses other than 200.
func (l *load) failed() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.failures)
}

// expectUnharmed ends the load. No request may have failed.
func (l *load) expectUnharmed() {
	l.t.Helper()
	l.stop()
	if failures := l.failed(); len(failures) > 0 {
		l.t.Errorf("%s: %d requests failed, the first: %s", l.name, len(failures), strings.Join(failures[:min(5, len(failures))], "; "))
	}
	l.t.Logf("%s: %v, %d failed", l.name, l.snapshot(), len(l.failed()))
}

// expectShare fails if a name's share of a sample is not percent, within five standard
// deviations.
func expectShare(t testing.TB, what string, sample map[string]int, name string, percent int) {
	t.Helper()
	total := 0
	for _, n := range sample {
		total += n
	}
	p, n := float64(percent)/100, float64(total)
	off := math.Abs(float64(sample[name]) - p*n)
	const late = 2 // requests that were in flight before the sample
	if total == 0 || off > 5*math.Sqrt(n*p*(1-p))+late {
		t.Errorf("%s: %s has %d of %v, want about %d %%", what, name, sample[name], sample, percent)
	}
}

// toVersion returns objects that send all requests for a host to the endpoints of one version.
func toVersion(name, host, version string) string {
	return fill(`
apiVersion: networking.istio.io/v1
kind: DestinationRule
metadata: {name: $name, namespace: shop}
spec:
  host: $host
  subsets: [{name: chosen, labels: {version: $version}}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: $name, namespace: shop}
spec:
  hosts: [$host]
  http: [{route: [{destination: {host: $host, subset: chosen}}]}]
`, "$name", name, "$host", host, "$version", version)
}
