package consul_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/discovery/consul"
	"github.com/portolan-mesh/portolan/discovery/discoverytest"
	"github.com/portolan-mesh/portolan/storage/logtest"
)

// agent is a fake agent of Consul, with blocking queries. The test sets its catalogue.
type agent struct {
	*httptest.Server

	mu      sync.Mutex // guards the fields below
	index   uint64
	changed chan struct{} // closed at the next change
	server  string        // the id of the only server of Consul
	entries map[string]*api.ServiceEntry
	denied  bool // whether Consul refuses the token
	leader  bool
	hidden  func(service string) bool
	hangs   bool
	held    []string // the kinds of blocking queries that get no answer
	// texts holds each instance as last seen, without and with its checks. modified holds the
	// index at which an instance last changed apart from its checks. requests counts the
	// queries of each kind.
	texts    map[string][2]string
	modified map[string]uint64
	requests map[string]int
}

func newAgent(t *testing.T) *agent {
	t.Helper()
	a := &agent{
		index: 10, changed: make(chan struct{}), server: "first", leader: true,
		entries: map[string]*api.ServiceEntry{}, hidden: func(string) bool { return false },
		texts: map[string][2]string{}, modified: map[string]uint64{}, requests: map[string]int{},
	}
	a.Server = httptest.NewServer(a)
	t.Cleanup(a.Close)
	return a
}

// change changes the catalogue, and so ends all blocking queries.
func (a *agent) change(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f()
	a.index++
	a.stamp()
	close(a.changed)
	a.changed = make(chan struct{})
}

// stamp sets the index of the change on everything that changed, as Consul does.
func (a *agent) stamp() {
	text := func(v any) string { b, _ := json.Marshal(v); return string(b) }
	for id, e := range a.entries {
		service := *e.Service
		service.ModifyIndex = 0
		now := [2]string{text(service)}
		for _, c := range e.Checks {
			now[1] += c.CheckID + c.Status
		}
		if before, ok := a.texts[id]; !ok || before[0] != now[0] {
			a.modified[id] = a.index
		}
		e.Service.ModifyIndex = a.modified[id]
		for _, c := range e.Checks {
			if a.texts[id][1] != now[1] {
				c.ModifyIndex = a.index
			}
			c.ServiceName = e.Service.Service
		}
		a.texts[id] = now
	}
}

func (a *agent) put(e *api.ServiceEntry) {
	service := *e.Service
	own := &api.ServiceEntry{Node: e.Node, Service: &service}
	for _, c := range e.Checks {
		c := *c
		own.Checks = append(own.Checks, &c)
	}
	e = own
	a.change(func() { a.entries[e.Node.Node+"/"+e.Service.ID] = e })
}

func (a *agent) remove(id string) { a.change(func() { delete(a.entries, id) }) }

// ServeHTTP implements http.Handler.
func (a *agent) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var after uint64
	_, _ = fmt.Sscan(r.URL.Query().Get("index"), &after)
	a.mu.Lock()
	kind := strings.Join(strings.Split(r.URL.Path, "/")[2:4], "/")
	a.requests[kind]++
	for a.hangs || after > 0 && (slices.Contains(a.held, kind) || a.index == after && a.leader && !a.denied) {
		changed := a.changed
		a.mu.Unlock()
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
		a.mu.Lock()
	}
	defer a.mu.Unlock()
	switch {
	case a.denied:
		http.Error(w, "ACL not found", http.StatusForbidden)
		return
	case !a.leader:
		http.Error(w, "No cluster leader", http.StatusInternalServerError)
		return
	}
	answer, filtered := a.answer(r.URL.Query().Get("dc"), kind, r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:])
	w.Header().Set("X-Consul-Index", fmt.Sprint(a.index))
	w.Header().Set("X-Consul-KnownLeader", "true")
	w.Header().Set("X-Consul-LastContact", "0")
	w.Header().Set("X-Consul-Results-Filtered-By-ACLs", fmt.Sprint(filtered))
	_ = json.NewEncoder(w).Encode(answer)
}

// answer returns the content of one kind in a datacentre, and whether ACLs hide some of it.
func (a *agent) answer(dc, kind, name string) (answer any, filtered bool) {
	services, nodes := map[string][]string{"consul": nil}, map[string]*api.Node{}
	var instances []*api.ServiceEntry
	var onNode []*api.AgentService
	checks := api.HealthChecks{}
	for _, e := range a.entries {
		if dc != "" && e.Node.Datacenter != dc {
			continue
		}
		nodes[e.Node.Node] = e.Node
		if a.hidden(e.Service.Service) {
			filtered = true
			continue
		}
		services[e.Service.Service] = nil
		if strings.EqualFold(e.Service.Service, name) {
			instances = append(instances, e)
		}
		if e.Node.Node == name {
			onNode = append(onNode, e.Service)
		}
		for _, c := range e.Checks {
			if c.Status == name {
				checks = append(checks, c)
			}
		}
	}
	switch kind {
	case "catalog/services":
		if a.hidden("consul") {
			delete(services, "consul")
			filtered = true
		}
		return services, filtered
	case "catalog/service":
		return []*api.CatalogService{{ID: a.server, CreateIndex: 7}}, false
	case "catalog/nodes":
		var out []*api.Node
		for _, n := range nodes {
			out = append(out, n)
		}
		return out, false
	case "catalog/node-services":
		return api.CatalogNodeServiceList{Node: nodes[name], Services: onNode}, filtered
	case "health/state":
		return checks, filtered
	}
	return instances, filtered && len(instances) == 0
}

// entry returns an instance of a service on a node.
func entry(node, service, id, address string, port int, more ...func(*api.ServiceEntry)) *api.ServiceEntry {
	e := &api.ServiceEntry{
		Node:    &api.Node{Node: node, Address: "10.9.9.9", Datacenter: "dc1"},
		Service: &api.AgentService{ID: id, Service: service, Address: address, Port: port},
	}
	for _, f := range more {
		f(e)
	}
	return e
}

// fixture is a registry that follows an agent, with a running worker.
type fixture struct {
	*consul.Registry
	t       *testing.T
	agent   *agent
	xds     *discoverytest.Recorder
	worker  *cache.Worker
	log     *logtest.Log
	metrics *prometheus.Registry
}

// follow runs a registry until the test ends.
func follow(t *testing.T, a *agent, change ...func(*consul.Options)) *fixture {
	t.Helper()
	f := &fixture{t: t, agent: a, xds: &discoverytest.Recorder{}, worker: cache.NewWorker(), log: &logtest.Log{}, metrics: prometheus.NewRegistry()}
	o := consul.Options{
		Address: a.URL, XDS: f.xds, Worker: f.worker, Registerer: f.metrics,
		Logger: slog.New(slog.NewTextHandler(f.log, nil)),
	}
	for _, c := range change {
		c(&o)
	}
	r, err := consul.New(o)
	if err != nil {
		t.Fatal(err)
	}
	f.Registry = r
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = f.worker.Run(ctx) })
	running.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return f
}

// synced waits until the registry has synced.
func (f *fixture) synced() *fixture {
	f.t.Helper()
	await(f.t, "the registry has synced", f.HasSynced)
	return f
}

// row waits until a service has these endpoints, each written as "port=address:port".
func (f *fixture) row(service string, endpoints ...string) {
	f.t.Helper()
	await(f.t, fmt.Sprintf("%s has %v", service, endpoints), func() bool {
		return slices.Equal(f.xds.Endpoints("consul", service+".service.consul"), endpoints)
	})
}

func (f *fixture) has(service string) bool {
	return len(f.xds.Rows()["consul/"+service+".service.consul"].Services) > 0
}

// await waits until something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("it does not come true: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}
