package integration

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
	"github.com/portolan-mesh/portolan/xds/xdstest"
)

// twins are two services whose port and generation always change together.
func twins(generation int) []string {
	var out []string
	for _, name := range []string{"left", "right"} {
		out = append(out, fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $name, namespace: shop, labels: {generation: g$generation}}
spec:
  hosts: [$name.shop.test]
  resolution: STATIC
  ports: [{number: $port, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1}]
`, "$name", name, "$generation", generation, "$port", 20000+generation))
	}
	return out
}

// TestBatchIsOneRevision changes two objects together, again and again. No proxy, watcher or
// reader ever sees one changed without the other.
func TestBatchIsOneRevision(t *testing.T) {
	inBothVariants(t, func(t *testing.T, v protocol.Variant) {
		const generations = 25
		s := startServer(t, serverOptions{})
		first := s.apply(twins(0)...)
		p := &pairs{t: t, held: map[string]bool{}, world: v == protocol.StateOfTheWorld}
		client := xdstest.Dial(t, s.xds, xdstest.ClientOptions{
			Node: xdstest.NewNode("sidecar", "10.0.0.2", "client", "shop", nil), Variant: v, Follow: true, OnAnswer: p.take,
		})
		client.Subscribe(xdstest.ClusterType)
		client.Subscribe(xdstest.ListenerType)
		watcher := s.watchTwins(t, first)
		reader := s.readTwins(t)
		for generation := 1; generation <= generations; generation++ {
			s.apply(twins(generation)...)
		}
		last := fmt.Sprintf("outbound|%d||", 20000+generations)
		client.Await("the last generation, and it alone", func(held func(string) map[string]xdstest.Held) bool {
			clusters := held(xdstest.ClusterType)
			_, left := clusters[last+"left.shop.test"]
			_, right := clusters[last+"right.shop.test"]
			return left && right && outbound(clusters) == 2
		})
		watcher.awaitGeneration(generations)
		reader()
		client.Close()
		if p.answers == 0 {
			t.Error("no clusters were looked at")
		}
	})
}

func outbound(clusters map[string]xdstest.Held) int {
	n := 0
	for name := range clusters {
		if strings.HasPrefix(name, "outbound|") {
			n++
		}
	}
	return n
}

// pairs records the ports of the twins' clusters in every answer.
type pairs struct {
	t       *testing.T
	world   bool
	held    map[string]bool
	answers int
}

var clusterOfTwin = regexp.MustCompile(`^outbound\|(\d+)\|\|(left|right)\.shop\.test$`)

// take is called by the client's goroutine, for one answer at a time.
func (p *pairs) take(a *xdstest.Answer) {
	if a.TypeURL != xdstest.ClusterType {
		return
	}
	p.answers++
	if p.world {
		clear(p.held)
	}
	for name := range a.Resources {
		p.held[name] = true
	}
	for _, name := range a.Removed {
		delete(p.held, name)
	}
	ports := map[string]int{}
	for name := range p.held {
		if m := clusterOfTwin.FindStringSubmatch(name); m != nil {
			ports[m[1]]++
		}
	}
	for port, n := range ports {
		if n != 2 {
			p.t.Errorf("answer %s leaves the proxy with half a batch: port %s has %d of 2 clusters", a.Nonce, port, n)
		}
	}
}

// object has the fields of a ServiceEntry that the scenario reads.
type object struct {
	Metadata struct {
		Name            string            `json:"name"`
		ResourceVersion string            `json:"resourceVersion"`
		Labels          map[string]string `json:"labels"`
	} `json:"metadata"`
}

func (o object) generation() int {
	n, _ := strconv.Atoi(strings.TrimPrefix(o.Metadata.Labels["generation"], "g"))
	return n
}

// watched checks the events of a watch as they come: each revision has events of both twins,
// one after the other.
type watched struct {
	t  *testing.T
	mu sync.Mutex // guards the fields below
	at map[string]int
}

const serviceEntries = "/apis/networking.istio.io/v1/namespaces/shop/serviceentries"

// watchTwins watches the twins from a revision until the test ends.
func (s *server) watchTwins(t *testing.T, revision int64) *watched {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	path := fmt.Sprintf("%s?watch=true&resourceVersion=%d", serviceEntries, revision)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url(path), nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	response, err := transport.RoundTrip(r)
	if err != nil || response.StatusCode != http.StatusOK {
		cancel()
		t.Fatalf("watch: %v %v", response, err)
	}
	w := &watched{t: t, at: map[string]int{}}
	var running sync.WaitGroup
	running.Go(func() { w.read(bufio.NewScanner(response.Body)) })
	t.Cleanup(func() {
		cancel()
		_ = response.Body.Close()
		running.Wait()
		transport.CloseIdleConnections()
	})
	return w
}

func (w *watched) read(lines *bufio.Scanner) {
	revision, names := "", map[string]bool{}
	for lines.Scan() {
		var event struct {
			Type   string
			Object object
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			w.t.Errorf("watch: %v: %s", err, lines.Text())
			return
		}
		if at := event.Object.Metadata.ResourceVersion; at != revision {
			if len(names) == 1 {
				w.t.Errorf("the watch delivered half of revision %s: %v", revision, names)
			}
			revision, names = at, map[string]bool{}
		}
		if event.Type != "BOOKMARK" {
			names[event.Object.Metadata.Name] = true
			w.mu.Lock()
			w.at[event.Object.Metadata.Name] = event.Object.generation()
			w.mu.Unlock()
		}
	}
}

func (w *watched) awaitGeneration(generation int) {
	w.t.Helper()
	eventually(w.t, "the watch delivers the last generation", func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.at["left"] != generation || w.at["right"] != generation {
			return fmt.Errorf("it is at %v", w.at)
		}
		return nil
	})
}

// readTwins lists the twins again and again, until the caller calls end.
func (s *server) readTwins(t *testing.T) (end func()) {
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			var list struct{ Items []object }
			if _, err := s.get(serviceEntries, &list); err != nil {
				t.Errorf("list: %v", err)
				return
			}
			if len(list.Items) != 2 || list.Items[0].generation() != list.Items[1].generation() ||
				list.Items[0].Metadata.ResourceVersion != list.Items[1].Metadata.ResourceVersion {
				t.Errorf("a list has half a batch: %+v", list.Items)
			}
		}
	})
	var once sync.Once
	end = func() { once.Do(func() { close(stop); running.Wait() }) }
	t.Cleanup(end)
	return end
}

// TestStaleVersionStopsBatch: if the third document of a batch has a stale resource version,
// nothing of the batch is written.
func TestStaleVersionStopsBatch(t *testing.T) {
	t.Parallel()
	s, x := startServer(t, serverOptions{}), newShop(t)
	s.apply(x.all(50, 50))
	client := xdstest.Dial(t, s.xds, xdstest.ClientOptions{
		Node: xdstest.NewNode("router", "10.0.0.2", "edge", "shop", map[string]string{"app": "edge"}), Variant: protocol.Delta, Follow: true,
	})
	client.Subscribe(xdstest.ClusterType)
	client.Subscribe(xdstest.ListenerType)
	s.awaitSynced(s.revision(), "edge")
	stale := s.must("", "get", "virtualservices", "reviews", "-n", "shop", "-o", "yaml")
	revision := s.apply(x.routes(40, 60))
	s.awaitSynced(revision, "edge")
	answers, before := len(client.Answers("")), s.storedKeys()

	documents := strings.Join([]string{x.entry(x.v2), fill(tunedRule, "$host", shopHost), stale, x.door()}, "\n---\n")
	out := s.try(documents, "apply", "-f", "-")
	expectEqual(t, "exit code", out.code, 75)
	for _, want := range []string{"reviews", fmt.Sprint(revision)} {
		if !strings.Contains(out.stderr, want) {
			t.Errorf("the error does not name %s: %s", want, out.stderr)
		}
	}
	expectEqual(t, "what the store has", s.storedKeys(), before)
	if rule := s.must("", "get", "dr", "reviews", "-n", "shop", "-o", "yaml"); strings.Contains(rule, "ROUND_ROBIN") {
		t.Errorf("the second document was applied:\n%s", rule)
	}
	// A later change does not bring the failed batch along.
	s.awaitSynced(s.apply(x.routes(30, 70)), "edge")
	if n := len(client.Answers("")) - answers; n != 1 {
		t.Errorf("%d answers since the refused batch, want the one of the change after it", n)
	}
}
