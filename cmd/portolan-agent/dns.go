package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/nameserver"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/relay"
	"github.com/portolan-mesh/portolan/xds/names/nds"
)

// newNames makes the DNS server, if the file has one, and adds what follows its names.
func (a *agent) newNames(follow map[string]relay.Follower) {
	if a.config.DNS == nil {
		return
	}
	o := a.config.Nameserver()
	o.Logger, o.Table.Logger = a.logger, a.logger
	o.Changed = a.captureAnew
	a.names = nameserver.New(o)
	follow[nds.HostType] = o.Table.Update
}

// startNames starts the DNS server, if there is one.
func (a *agent) startNames(ctx context.Context, group *errgroup.Group) error {
	if a.names == nil {
		return nil
	}
	sockets, err := a.names.Listen(ctx)
	if err == nil {
		group.Go(func() error { return a.names.Run(ctx, sockets) })
	}
	return err
}

func printNames(w io.Writer, s nameserver.Status, ago func(time.Time) string) {
	hosts := "no hosts known yet, all is forwarded"
	if !s.Since.IsZero() {
		hosts = fmt.Sprintf("%d hosts, known since %s, changed %s", s.Hosts, ago(s.Since), ago(s.Changed))
	}
	fmt.Fprintf(w, "dns\t%s\n", hosts)
	fmt.Fprintf(w, "\tqueries %d: of the mesh %d, forwarded %d, cached %d, failed %d, refused %d\n", s.Queries, s.Mesh, s.Forwarded, s.Cached, s.Failed, s.Refused)
	for _, r := range s.Resolvers {
		state := r.Problem
		switch {
		case state != "":
		case r.Asked:
			state = "in use"
		default:
			state = "not asked yet"
		}
		fmt.Fprintf(w, "resolver\t%s: %s\n", r.Address, state)
	}
	if s.Problem != "" {
		fmt.Fprintf(w, "\t%s\n", s.Problem)
	}
}

// nameMetrics adds those of the DNS server.
func (a *agent) nameMetrics(registry *prometheus.Registry) {
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portolan_agent_dns_hosts", Help: "Hosts of the mesh whose names the agent answers.",
	}, func() float64 { return float64(a.names.Status().Hosts) }))
	counter := func(name, text string, value func(nameserver.Status) uint64) {
		registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "portolan_agent_dns_" + name + "_total", Help: text},
			func() float64 { return float64(value(a.names.Status())) }))
	}
	counter("queries", "Questions for names that came.", func(s nameserver.Status) uint64 { return s.Queries })
	counter("mesh", "Questions that were answered with hosts of the mesh.", func(s nameserver.Status) uint64 { return s.Mesh })
	counter("forwarded", "Questions that went to resolvers.", func(s nameserver.Status) uint64 { return s.Forwarded })
	counter("cached", "Questions that were answered with what a resolver had said before.", func(s nameserver.Status) uint64 { return s.Cached })
	counter("failed", "Questions that no resolver answered.", func(s nameserver.Status) uint64 { return s.Failed })
	counter("refused", "Questions that came while too many waited for resolvers.", func(s nameserver.Status) uint64 { return s.Refused })
}

func (a *agent) writeOrigin(w http.ResponseWriter, r *http.Request) {
	if a.names == nil {
		http.Error(w, "the agent answers no questions for names: add dns to its file", http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a.names.Origin(r.PathValue("name"))) // who asked has gone
}

func newDNS(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "dns NAME",
		Short: "Say where the running agent takes the answer for a name from",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			body, err := env.ask(c.Context(), http.MethodGet, "/names/"+url.PathEscape(args[0]))
			if err != nil {
				return err
			}
			var from nameserver.Origin
			if err := json.Unmarshal(body, &from); err != nil {
				return err
			}
			if from.Host == "" {
				_, err = fmt.Fprintf(env.stdout, "%s is not of the mesh: resolvers are asked.\n", args[0])
				return err
			}
			_, err = fmt.Fprintf(env.stdout, "%s is the host %s of the mesh, at %v.\n", args[0], from.Host, from.Addresses)
			return err
		},
	}
}
