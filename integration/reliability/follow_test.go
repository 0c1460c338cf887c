package reliability_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/integration/reliability"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// watcher is a client that watches one scope as an informer does: it lists, and watches from
// there. After an interruption it resumes, maybe at another replica. It lists again when its
// revision is too old.
type watcher struct {
	r     *rig
	apis  map[*server]*client.Client
	scope string
	at    int // the replica
	from  int64
	held  map[reliability.Key]reliability.Version
	// resumed means that held comes from events.
	resumed bool
}

func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		s := w.r.servers[w.at%len(w.r.servers)]
		if w.from == 0 {
			l, class := w.r.list(ctx, w.apis[s], s, -1, w.scope, client.Freshness{})
			if class != reliability.OK {
				w.at++
				pass(ctx, 100*time.Millisecond)
				continue
			}
			w.from, w.held, w.resumed = l.Revision, maps.Clone(l.Objects), false
		}
		err := w.watch(ctx, s)
		if errors.Is(err, errExpired) {
			w.from = 0
			continue
		}
		w.at++
		pass(ctx, 50*time.Millisecond)
	}
}

// errExpired means that the revision of a watch is too old.
var errExpired = errors.New("the revision is too old")

// watch follows one connection and records it.
func (w *watcher) watch(ctx context.Context, s *server) error {
	key := reliability.Key(w.scope + "/any").Config()
	resource := client.Resource(schema.Pilot().Kind(key.Kind))
	path := fmt.Sprintf("%s/apis/%s/%s/namespaces/%s/%s?watch=true&allowWatchBookmarks=true&resourceVersion=%d&timeoutSeconds=5",
		s.url(), resource.Group, resource.Version, key.Namespace, resource.Resource, w.from)
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second) // if its bytes are held back, it does not end by itself
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	before := s.id()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	switch {
	case response.StatusCode == http.StatusGone:
		return errExpired
	case response.StatusCode != http.StatusOK:
		return errors.New(response.Status)
	}
	if s.id() != before {
		return errors.New("the process is another one")
	}
	recorded := reliability.Watch{Replica: before, Scope: w.scope, From: w.from, Held: maps.Clone(w.held), Resumed: w.resumed}
	err = w.receive(response.Body, &recorded)
	w.resumed = true
	w.r.record(func(h *reliability.History) { h.Watches = append(h.Watches, recorded) })
	return err
}

func (w *watcher) receive(body io.Reader, recorded *reliability.Watch) error {
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return err
		}
		var event struct {
			Type   string
			Object unstructured.Unstructured
		}
		if err := json.Unmarshal(line, &event); err != nil {
			return err
		}
		if event.Type == "ERROR" {
			if code, _, _ := unstructured.NestedInt64(event.Object.Object, "code"); code == http.StatusGone {
				return errExpired
			}
			return errors.New("the watch was ended")
		}
		v := versionOf(&event.Object)
		d := reliability.Delivery{At: w.r.now(), Type: event.Type, Revision: v.Revision}
		w.from = v.Revision
		if event.Type != reliability.Bookmark {
			d.Key, d.Value = reliability.Key(w.scope+"/"+event.Object.GetName()), v.Value
			w.held = reliability.Apply(w.held, d)
		}
		recorded.Events = append(recorded.Events, d)
	}
}

// proxy is an xDS client of one replica. It reconnects with all that it has whenever its stream
// ends.
type proxy struct {
	r       *rig
	s       *server
	name    string
	variant protocol.Variant

	mu      sync.Mutex // guards the fields below
	current *xdstest.Client
}

// nodeName is the node name of all clients: since they are the same proxy, all must receive the
// same.
const nodeName = "edge"

func (r *rig) newProxy(s *server, v protocol.Variant) *proxy {
	return &proxy{r: r, s: s, variant: v, name: fmt.Sprintf("%s/%v", s.name, v)}
}

func (p *proxy) run(ctx context.Context) {
	var last *xdstest.Client
	for connection := 1; ctx.Err() == nil; connection++ {
		c, err := p.connect(last, connection)
		if err != nil {
			pass(ctx, 50*time.Millisecond)
			continue
		}
		p.mu.Lock()
		p.current = c
		p.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-c.Done():
		}
		c.Close()
		last = c
		pass(ctx, 50*time.Millisecond)
	}
}

func (p *proxy) connect(last *xdstest.Client, connection int) (*xdstest.Client, error) {
	replica, name := p.s.id(), fmt.Sprintf("%s/%d", p.name, connection)
	c, err := xdstest.Open(p.r.t, p.s.xds, xdstest.ClientOptions{
		Node:    xdstest.NewNode("router", "10.255.0.1", nodeName, "group", map[string]string{"app": "edge"}),
		Variant: p.variant, Follow: true, Resume: last,
		OnAnswer: func(a *xdstest.Answer) { p.take(replica, name, a) },
	})
	if err == nil && last == nil {
		c.Subscribe(xdstest.ClusterType)
		c.Subscribe(xdstest.ListenerType)
	}
	return c, err
}

// take records one response.
func (p *proxy) take(replica, name string, a *xdstest.Answer) {
	bodies := map[string]*anypb.Any{}
	for resource, h := range a.Resources {
		bodies[resource] = h.Body
	}
	whole := p.variant == protocol.StateOfTheWorld && a.TypeURL == xdstest.ClusterType
	push, err := reliability.ReadPush(a.Nonce, bodies, a.Removed, whole)
	if err != nil {
		p.r.fail("%s: %w", name, err)
		return
	}
	push.Replica, push.Stream, push.At, push.Type = replica, name, p.r.now(), shortType(a.TypeURL)
	p.r.record(func(h *reliability.History) { h.Pushes = append(h.Pushes, push) })
}

func shortType(url string) string { return url[strings.LastIndexByte(url, '.')+1:] }

// holds returns a digest of all that an xDS client holds.
func holds(c *xdstest.Client) string {
	sum := sha256.New()
	for _, typeURL := range []string{xdstest.ClusterType, xdstest.EndpointType, xdstest.ListenerType, xdstest.RouteType} {
		held := c.Held(typeURL)
		for _, name := range slices.Sorted(maps.Keys(held)) {
			fmt.Fprintf(sum, "%s %s %x\n", shortType(typeURL), name, held[name].Body.GetValue())
		}
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:8])
}

func (p *proxy) digest() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current == nil {
		return ""
	}
	return holds(p.current)
}

// newcomers connects new proxies to a server, one after the other. Those that come while the
// server is well must soon have their clusters.
func (r *rig) newcomers(ctx context.Context, s *server) {
	for number := 0; ctx.Err() == nil; number++ {
		pass(ctx, time.Second)
		if !s.well() || ctx.Err() != nil {
			continue
		}
		before, n := s.id(), reliability.Newcomer{Replica: s.name, Start: r.now()}
		c, err := r.newcomer(ctx, s, number)
		n.Took = r.now() - n.Start
		if err != nil {
			n.Error = err.Error()
		}
		if c != nil {
			c.Close()
		}
		if s.well() && s.id() == before && ctx.Err() == nil {
			r.record(func(h *reliability.History) { h.Newcomers = append(h.Newcomers, n) })
		}
	}
}

// newcomer connects a new proxy and waits until it has the clusters of all groups, and their
// endpoints.
func (r *rig) newcomer(ctx context.Context, s *server, number int) (*xdstest.Client, error) {
	c, err := xdstest.Open(r.t, s.xds, xdstest.ClientOptions{
		Node:    xdstest.NewNode("router", "10.255.0.1", nodeName, "group", map[string]string{"app": "edge"}),
		Variant: []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld}[number%2], Follow: true,
	})
	if err != nil {
		return nil, err
	}
	c.Subscribe(xdstest.ClusterType)
	c.Subscribe(xdstest.ListenerType)
	return c, await(ctx, promises.Newcomer, func() error {
		clusters, endpoints, routes := c.Held(xdstest.ClusterType), c.Held(xdstest.EndpointType), c.Held(xdstest.RouteType)
		for i := range reliability.Groups() {
			name := fmt.Sprintf("outbound|80||g%d.group.test", i)
			if clusters[name].Body == nil || endpoints[name].Body == nil || len(routes) == 0 {
				return fmt.Errorf("%s is not there: %d clusters, %d endpoints, %d routes", name, len(clusters), len(endpoints), len(routes))
			}
		}
		return nil
	})
}

// sample reads a server's metrics again and again.
func (r *rig) sample(ctx context.Context, s *server) {
	for ctx.Err() == nil {
		if sample, err := r.measure(ctx, s); err == nil {
			r.record(func(h *reliability.History) { h.Samples = append(h.Samples, sample) })
		}
		pass(ctx, 300*time.Millisecond)
	}
}

// measure reads the metrics of a server once.
func (r *rig) measure(ctx context.Context, s *server) (reliability.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	out := reliability.Sample{Replica: s.id(), Start: r.now()}
	text, err := get(ctx, s.url()+"/metrics")
	if err != nil {
		return out, err
	}
	out.End = r.now()
	if s.id() != out.Replica {
		return out, errors.New("the process is another one")
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "portolan_cache_revision":
			out.Revision = int64(v)
		case "portolan_cache_staleness_seconds":
			out.Staleness = v
		case "go_goroutines":
			out.Goroutines = int(v)
		case "process_open_fds":
			out.Files = int(v)
		case "process_resident_memory_bytes":
			out.Resident = int64(v)
		case "portolan_cache_epochs_total":
			out.Epochs = int(v)
		}
	}
	return out, nil
}

// get returns the body at a URL.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	request.Close = true // the test's own connections must not count
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return string(body), err
}

// following runs the watchers, the proxies and the other observers until the caller calls stop.
func (r *rig) following(ctx context.Context) (proxies []*proxy, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	for i, s := range r.servers {
		for _, scope := range reliability.Scopes()[:4] {
			w := &watcher{r: r, apis: r.newAPIs(), scope: scope, at: i}
			running.Go(func() { w.run(ctx) })
		}
		for _, v := range []protocol.Variant{protocol.Delta, protocol.StateOfTheWorld} {
			p := r.newProxy(s, v)
			proxies = append(proxies, p)
			running.Go(func() { p.run(ctx) })
		}
		running.Go(func() { r.newcomers(ctx, s) })
		running.Go(func() { r.sample(ctx, s) })
	}
	return proxies, func() { cancel(); running.Wait() }
}
