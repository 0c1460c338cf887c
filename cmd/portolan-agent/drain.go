package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/google/renameio/v2"
	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/envoy"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/discovery/node"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// standing is what the servers are told of the machine: what its probe says, unless somebody has
// drained the machine.
type standing struct {
	file string // says why the machine is drained; missing if it is not
	tell func(ctx context.Context, healthy bool, why string)

	mu      sync.Mutex
	drained *string
	probe   *verdict // nil before the first, and without a probe
}

// verdict is what a probe says.
type verdict struct {
	healthy bool
	why     string
}

// newStanding reads whether the machine is drained, and says so if it is.
func newStanding(file string, tell func(context.Context, bool, string)) (*standing, error) {
	s := &standing{file: file, tell: tell}
	switch text, err := os.ReadFile(file); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		why := string(text)
		s.drained = &why
	}
	return s, nil
}

// begin tells the servers what a machine that was drained before is still.
func (s *standing) begin(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drained != nil {
		s.say(ctx)
	}
}

// report takes what the probe says.
func (s *standing) report(ctx context.Context, healthy bool, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.probe = &verdict{healthy, why}
	s.say(ctx)
}

// drain takes the machine out of its clients' endpoints, until resume, also over restarts.
func (s *standing) drain(ctx context.Context, why string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := renameio.WriteFile(s.file, []byte(why), 0o600); err != nil {
		return err
	}
	s.drained = &why
	s.say(ctx)
	return nil
}

// resume ends drain. It succeeds if the machine is not drained.
func (s *standing) resume(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Remove(s.file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if s.drained != nil {
		s.drained = nil
		s.say(ctx)
	}
	return nil
}

// say tells the servers. The caller holds mu.
func (s *standing) say(ctx context.Context) {
	switch {
	case s.drained != nil:
		s.tell(ctx, false, whyDrained(*s.drained))
	case s.probe != nil:
		s.tell(ctx, s.probe.healthy, s.probe.why)
	default:
		s.tell(ctx, true, "")
	}
}

// why returns why the machine is drained; false if it is not.
func (s *standing) why() (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.drained == nil {
		return "", false
	}
	return whyDrained(*s.drained), true
}

func whyDrained(reason string) string {
	if reason == "" {
		return "drained"
	}
	return "drained: " + reason
}

func (a *agent) takeDrain(w http.ResponseWriter, r *http.Request) {
	err := a.standing.drain(r.Context(), r.URL.Query().Get("reason"))
	a.tellFacts(r.Context())
	a.answer(w, err, a.untold())
}

func (a *agent) takeResume(w http.ResponseWriter, r *http.Request) {
	err := a.standing.resume(r.Context())
	a.tellFacts(r.Context())
	a.answer(w, err, a.untold())
}

// answer says what has become of a request, and what the servers have not heard yet.
func (a *agent) answer(w http.ResponseWriter, err error, untold string) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_, _ = io.WriteString(w, untold) // who asked has gone
}

// untold says that no server hears what the machine says, empty if one does.
func (a *agent) untold() string {
	for _, c := range a.relay.Clients() {
		if c.Server != "" {
			return ""
		}
	}
	return "No server has been told yet: none answers. They are told as soon as one does."
}

// writeUnderWay says what of others is under way in the workload.
func (a *agent) writeUnderWay(w http.ResponseWriter, r *http.Request) {
	var now envoy.UnderWay
	if a.envoy != nil {
		var err error
		if now, err = a.envoy.UnderWay(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	_ = json.NewEncoder(w).Encode(now) // who asked has gone
}

// left says what of others is still under way; nil for the unknown.
func left(now *envoy.UnderWay) string {
	count := func(n int, one, more string) string {
		if n == 1 {
			return "1 " + one
		}
		return fmt.Sprintf("%d %s", n, more)
	}
	switch {
	case now == nil:
		return "some requests may be under way"
	case now.Requests == 0:
		return "no request is under way, and " + count(now.Connections, "connection of others is open, which may bring one", "connections of others are open, which may bring some")
	}
	return count(now.Requests, "request is under way, and ", "requests are under way, and ") + count(now.Connections, "connection of HTTP is open", "connections of HTTP are open")
}

func newDrain(env *environment) *cobra.Command {
	reason, within := "", time.Duration(0)
	c := &cobra.Command{
		Use:   "drain",
		Short: "Take this machine out of its clients' endpoints, and wait until their connections have ended",
		Long: `Take this machine out of its clients' endpoints, and wait until their requests and
connections to its services have ended. Proxies of the mesh end theirs by themselves.
Clients without one may keep theirs open until the machine stops: see --timeout.

The machine stays in the mesh: its own requests go on, and its entry stays, unhealthy.
It stays drained over restarts, until portolan-agent resume. An entry that somebody has
written for the machine heeds that only if it names a probe: use portolan machine drain.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if within < 0 {
				return exit.With(exit.Usage, fmt.Errorf("--timeout %s: give a time that is not negative", within))
			}
			untold, err := env.ask(c.Context(), http.MethodPost, "/drain?reason="+url.QueryEscape(reason))
			if err != nil {
				return err
			}
			if len(untold) > 0 {
				return exit.With(exit.Unreachable, errors.New("the machine is drained. "+string(untold)))
			}
			ctx, cancel := context.WithTimeout(c.Context(), within)
			defer cancel()
			var now *envoy.UnderWay
			for quiet := 0; quiet < 3; quiet++ {
				if err := retry.Sleep(ctx, 100*time.Millisecond); err != nil {
					return exit.With(exit.Unconcerned, fmt.Errorf("the machine is drained, and after %s %s", within, left(now)))
				}
				text, err := env.ask(ctx, http.MethodGet, "/under-way")
				if err == nil {
					now = &envoy.UnderWay{}
					err = json.Unmarshal(text, now)
				}
				if err != nil && ctx.Err() == nil {
					return err
				}
				if now == nil || *now != (envoy.UnderWay{}) {
					quiet = -1
				}
			}
			if _, err = fmt.Fprintln(env.stdout, "The machine is drained: no request of others is under way, and no connection is open. portolan-agent resume takes it back."); err != nil {
				return err
			}
			if file, err := config.Read(env.config); err == nil && file.Proxy.Group == "" {
				fmt.Fprintln(env.stderr, "The machine names no group. Only a WorkloadEntry that somebody has written for it, and that names a probe, heeds the drain.")
			}
			return nil
		},
	}
	c.Flags().StringVar(&reason, "reason", "", "why, for those who look at the machine's entry")
	c.Flags().DurationVar(&within, "timeout", 30*time.Second, "how long to wait for requests and connections of others; then the machine stays drained, and the exit code is 3")
	return c
}

// keptOut says why the mesh sends the machine no requests, though it has not drained itself; empty if
// it does.
func (e *environment) keptOut(ctx context.Context) string {
	var s Status
	body, err := e.ask(ctx, http.MethodGet, "/status")
	if err != nil || json.Unmarshal(body, &s) != nil || s.Registration == nil {
		return ""
	}
	switch r := s.Registration; {
	case r.State == node.Refused:
		return "it is not registered: " + r.Reason
	case r.Drained != "":
		return "the mesh's operators have drained it: " + r.Drained
	}
	return ""
}

func newResume(env *environment) *cobra.Command {
	return &cobra.Command{
		Use: "resume", Short: "Take this machine back into its clients' endpoints", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			untold, err := env.ask(c.Context(), http.MethodPost, "/resume")
			if err != nil {
				return err
			}
			text := "The machine takes requests again."
			if others := env.keptOut(c.Context()); others != "" {
				text = "The machine has ended its own drain, and still gets no requests: " + others + "."
			}
			_, err = fmt.Fprintln(env.stdout, strings.TrimSpace(text+" "+string(untold)))
			return err
		},
	}
}
