package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/health"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/relay"
	"github.com/portolan-mesh/portolan/discovery/node"
)

// newHealth returns what runs the probe of the workload.
func (a *agent) newHealth(noEnvoy bool) *health.Prober {
	checker := health.Checker{Addresses: func() []string { return a.located.Load().Addresses }, Exec: a.config.Health.Exec}
	o := health.Options{
		Check: checker.Check, What: checker.What, Logger: a.logger,
		Report: a.standing.report,
	}
	if !noEnvoy {
		o.Proxy = func(ctx context.Context) error { return a.envoy.Ready(ctx) }
	}
	return health.New(o)
}

// readyPath is where the agent says whether the machine is ready for traffic.
const readyPath = "/healthz/ready"

// unready returns why the machine's proxy is not ready for traffic; none if it is.
func (a *agent) unready(ctx context.Context) (out []string) {
	if a.leaving.Load() {
		return []string{"the agent ends and drains"}
	}
	switch until := a.secrets.Until(); {
	case until.IsZero():
		out = append(out, "the certificate cannot be read")
	case time.Now().After(until):
		out = append(out, "the certificate has expired")
	}
	if a.envoy == nil {
		return append(out, a.unsupplied()...)
	}
	if err := a.envoy.Ready(ctx); err != nil {
		why := err.Error()
		for _, c := range a.relay.Clients() {
			if c.Refused != "" {
				why += ": it refuses what the server sends: " + c.Refused
			}
		}
		out = append(out, why)
	}
	return out
}

// unsupplied says why the proxies that others run have no configuration; none if they have, from
// a server or as it was last.
func (a *agent) unsupplied() (out []string) {
	clients, kept := a.relay.Clients(), a.store.List()
	if len(clients) == 0 {
		return []string{"no proxy is connected"}
	}
	for _, c := range clients {
		if c.Server == "" && !slices.ContainsFunc(kept, func(k relay.Kept) bool { return k.For(c.Node) }) {
			out = append(out, "no server answers the proxy "+c.Node)
		}
	}
	return out
}

// faulty adds why the workload is not healthy, or the machine not registered.
func (a *agent) faulty(unready []string) []string {
	if a.leaving.Load() {
		return unready
	}
	if s := a.standsAs.Load(); s != nil && s.State == node.Refused {
		unready = append(unready, "the machine is not registered: "+s.Reason)
	}
	if err := a.health.Problem(); err != nil {
		unready = append(unready, err.Error())
	}
	return unready
}

// unfit adds who has drained the machine.
func (a *agent) unfit(faults []string) []string {
	if a.leaving.Load() {
		return faults
	}
	if why, ok := a.standing.why(); ok {
		faults = append(slices.Clone(faults), "the machine is "+why)
	}
	if s := a.standsAs.Load(); s != nil && s.State != node.Refused && s.Drained != "" {
		faults = append(slices.Clone(faults), "the mesh's operators have drained the machine: "+s.Drained)
	}
	return faults
}

// inOneLine says whether the machine is ready.
func inOneLine(problems []string) string {
	if len(problems) == 0 {
		return "ready"
	}
	return "not ready: " + inWords(strings.Join(problems, "; "))
}

// inWords puts a text in one line.
func inWords(text string) string { return strings.Join(strings.Fields(text), " ") }

func (a *agent) writeReady(w http.ResponseWriter, r *http.Request) {
	problems := a.unfit(a.faulty(a.unready(r.Context())))
	if len(problems) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = fmt.Fprintln(w, inOneLine(problems)) // who asked has gone
}

// serveReady serves readyPath alone, until ctx ends.
func (a *agent) serveReady(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+readyPath, a.writeReady)
	return serveHTTP(ctx, l, &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second})
}
