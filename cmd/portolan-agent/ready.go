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
		out = append(out, err.Error())
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

// unfit adds why the workload is not ready.
func (a *agent) unfit(unready []string) []string {
	if why, ok := a.standing.why(); ok && !a.leaving.Load() {
		unready = append(unready, "the machine is "+why)
	}
	if why := a.keptOut(); why != "" && !a.leaving.Load() {
		unready = append(unready, why)
	}
	if err := a.health.Problem(); err != nil && !a.leaving.Load() {
		return append(unready, err.Error())
	}
	return unready
}

// inOneLine says whether the machine is ready.
func inOneLine(problems []string) string {
	if len(problems) == 0 {
		return "ready"
	}
	return "not ready: " + strings.Join(strings.Fields(strings.Join(problems, "; ")), " ")
}

func (a *agent) writeReady(w http.ResponseWriter, r *http.Request) {
	problems := a.unfit(a.unready(r.Context()))
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
