package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/envoy"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/health"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/nameserver"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/relay"
	"github.com/portolan-mesh/portolan/cmd/portolan/enroll"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/discovery/access/socket"
	"github.com/portolan-mesh/portolan/discovery/node"
)

// Status is what an agent says of itself.
type Status struct {
	Version     string         `json:"version"`
	Certificate Certificate    `json:"certificate"`
	Clients     []relay.Client `json:"clients"`
	LastGood    []relay.Kept   `json:"lastGood"`
	Envoy       *Envoy         `json:"envoy,omitempty"`
	// Patches is nil if no EnvoyFilter says anything of the bootstrap.
	Patches *PatchStatus `json:"patches,omitempty"`
	// Capture is nil if no traffic is captured.
	Capture *capture.Status `json:"capture,omitempty"`
	// Group is the WorkloadGroup in which the machine asks to be registered, empty for none.
	// Registration is what the servers say of that; nil if they have said nothing.
	Group        string         `json:"group,omitempty"`
	Registration *node.Standing `json:"registration,omitempty"`
	// Health is nil if no probe is for the machine.
	Health *health.Status `json:"health,omitempty"`
	// NotReady says why the machine is not ready for traffic; none if it is. Faults are those of them
	// that nobody has asked for.
	NotReady []string `json:"notReady,omitempty"`
	Faults   []string `json:"faults,omitempty"`
	// DNS is nil if the agent answers no questions for names.
	DNS *nameserver.Status `json:"dns,omitempty"`
}

// Certificate is that of the machine.
type Certificate struct {
	Identity string    `json:"identity"`
	Until    time.Time `json:"until"`
	Renewed  time.Time `json:"renewed"`
}

// Envoy is the child, with the resident memory of its process.
type Envoy struct {
	envoy.Status
	MemoryBytes int64 `json:"memoryBytes,omitempty"`
}

func (a *agent) status(ctx context.Context) (Status, error) {
	held, err := enroll.Read(a.config.Certificate())
	if err != nil {
		return Status{}, err
	}
	out := Status{Version: version, Clients: a.relay.Clients(), LastGood: a.store.List(), Health: a.health.Status(), Group: a.config.Proxy.Group, Registration: a.standsAs.Load()}
	out.Faults = a.faulty(a.unready(ctx))
	out.NotReady = a.unfit(out.Faults)
	out.Certificate = Certificate{Until: held.Pair.Leaf.NotAfter.UTC(), Renewed: held.Since.UTC()}
	if len(held.Pair.Leaf.URIs) > 0 {
		out.Certificate.Identity = held.Pair.Leaf.URIs[0].String()
	}
	if a.envoy != nil {
		now := a.envoy.Status()
		out.Envoy = &Envoy{now, memoryOf(now.PID)}
		_, out.Patches = a.patching()
	}
	if a.capture != nil {
		now := a.capture.Status()
		out.Capture = &now
	}
	if a.names != nil {
		now := a.names.Status()
		out.DNS = &now
	}
	return out, nil
}

// memoryOf returns the resident memory of a process, 0 if the system does not say.
func memoryOf(pid int) int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/statm")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseInt(fields[1], 10, 64)
	return pages * int64(os.Getpagesize())
}

func (a *agent) writeStatus(w http.ResponseWriter, r *http.Request) {
	out, err := a.status(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // who asked has gone
}

func (a *agent) takeRestart(w http.ResponseWriter, r *http.Request) {
	if a.envoy == nil {
		http.Error(w, "the agent runs no Envoy (--no-envoy)", http.StatusConflict)
		return
	}
	a.replaceAnew(context.WithoutCancel(r.Context()))
	w.WriteHeader(http.StatusAccepted)
}

// takeReload takes a certificate that join has put there.
func (a *agent) takeReload(w http.ResponseWriter, _ *http.Request) {
	a.answer(w, a.secrets.Reload(), "")
}

// ask calls the running agent.
func (e *environment) ask(ctx context.Context, method, path string) ([]byte, error) {
	c, err := config.Read(e.config)
	if err != nil {
		return nil, exit.With(exit.Data, err)
	}
	return callAgent(ctx, c.StatusSocket(), method, path)
}

// unwrapURL takes the URL from an error of a call: it is that of a socket, and says nothing to people.
func unwrapURL(err error) error {
	if of := (*url.Error)(nil); errors.As(err, &of) {
		return of.Err
	}
	return err
}

// callAgent calls the agent with this socket.
func callAgent(ctx context.Context, of, method, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := socket.Client(of).Do(r)
	if err != nil {
		return nil, exit.With(exit.Unreachable, fmt.Errorf("the agent does not answer: is it running (portolan-agent run), and may this user ask it? %w", unwrapURL(err)))
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = errors.New(strings.TrimSpace(string(body)))
	}
	return body, err
}

func newRestartEnvoy(env *environment) *cobra.Command {
	return &cobra.Command{
		Use:   "restart-envoy",
		Short: "Replace the running Envoy in place, by the binary and the bootstrap that are there now",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := env.ask(c.Context(), http.MethodPost, "/restart-envoy")
			return err
		},
	}
}

func outputFlag(output string) error {
	if output != "" && output != "json" {
		return exit.With(exit.Usage, fmt.Errorf("--output %q: give json, or leave it out", output))
	}
	return nil
}

func newStatus(env *environment) *cobra.Command {
	output := ""
	c := &cobra.Command{
		Use:   "status",
		Short: "Show the certificate, the servers, the last good configuration and the Envoy",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := outputFlag(output); err != nil {
				return err
			}
			body, err := env.ask(c.Context(), http.MethodGet, "/status")
			if err != nil {
				return err
			}
			if output == "json" {
				_, err := env.stdout.Write(body)
				return err
			}
			var s Status
			if err := json.Unmarshal(body, &s); err != nil {
				return err
			}
			return s.print(env.stdout, time.Now())
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json for a program")
	return c
}

func (s Status) print(out io.Writer, now time.Time) error {
	ago := func(t time.Time) string { return now.Sub(t).Round(time.Second).String() + " ago" }
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintf(w, "certificate\t%s, until %s, renewed %s\n", s.Certificate.Identity, s.Certificate.Until.Format(time.RFC3339), ago(s.Certificate.Renewed))
	for _, c := range s.Clients {
		server := "no server answers"
		if c.Server != "" {
			server = c.Server
		}
		fmt.Fprintf(w, "proxy\t%s: %s, since %s\n", c.Node, server, ago(c.Since))
		if c.Refused != "" {
			fmt.Fprintf(w, "\tit refuses what the server sends: %s\n", inWords(c.Refused))
		}
	}
	for _, k := range s.LastGood {
		fmt.Fprintf(w, "last good\t%s: as of %s, %d bytes\n", k.Proxy, ago(k.As), k.Bytes)
	}
	if e := s.Envoy; e != nil {
		fmt.Fprintf(w, "envoy\t%s, pid %d, since %s, restarts %d, replaced %d, %d MiB\n", e.Version, e.PID, ago(e.Since), e.Restarts, e.Epoch, e.MemoryBytes>>20)
		if e.LastExit != "" {
			fmt.Fprintf(w, "last exit\t%s\n", e.LastExit)
		}
	}
	if s.Patches != nil {
		for i, line := range s.Patches.lines() {
			fmt.Fprintf(w, "%s\t%s\n", []string{"patches", ""}[min(i, 1)], line)
		}
	}
	fmt.Fprintln(w, "registration\t"+s.registration())
	if h := s.Health; h != nil {
		h.Print(w, ago)
	}
	fmt.Fprintln(w, "traffic\t"+inOneLine(s.NotReady))
	if c := s.Capture; c != nil {
		fmt.Fprintf(w, "capture\trules %s, since %s, mended %d\n", c.State, ago(c.Since), c.Mended)
		if c.Problem != "" {
			fmt.Fprintf(w, "\t%s\n", c.Problem)
		}
	}
	if s.DNS != nil {
		printNames(w, *s.DNS, ago)
	}
	return w.Flush()
}
