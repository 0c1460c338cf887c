// Package envoy runs an Envoy as a child of the agent: it starts it again when it ends, replaces it
// in place, and drains it at the end.
package envoy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/portolan-mesh/portolan/storage/childprocess"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// minMinor is the oldest 1.x of Envoy that takes all that the servers send.
const minMinor = 40

// Settings say how an Envoy runs.
type Settings struct {
	// Args are added to its command line, and Env to its environment.
	Args, Env []string
	// Drain is how long connections may go on at the end, and ListenerDrain how long those may that a
	// changed listener or another Envoy has outdated.
	Drain, ListenerDrain time.Duration
}

// Restarts says whether an Envoy that runs by other settings must be replaced for these.
func (s Settings) Restarts(o Settings) bool {
	return !slices.Equal(s.Args, o.Args) || !slices.Equal(s.Env, o.Env) || s.ListenerDrain != o.ListenerDrain
}

// Options configure a Child. All but Settings and Logger are required.
type Options struct {
	// Path is the binary, Bootstrap its configuration, and Admin the address of its interface.
	Path, Bootstrap, Admin string
	// Dir is a directory for files of the child's runs.
	Dir    string
	Output io.Writer
	Logger *slog.Logger
	// Settings are those of the first Envoy.
	Settings Settings
	// Failed takes why an Envoy has ended soon after its start, before Ready found that it works. The
	// next starts when it returns. Nil for nobody.
	Failed func(error)
}

// Child is an Envoy.
type Child struct {
	o       Options
	replace chan struct{}

	mu       sync.Mutex // guards the fields below
	settings Settings
	status   Status
	older    []*childprocess.Process // those that were replaced in place
	// configured says that the Envoy has had its configuration.
	configured bool
}

// Status is what is known of the child.
type Status struct {
	Version  string    `json:"version"`
	PID      int       `json:"pid,omitempty"`
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"`
	Epoch    int       `json:"epoch"` // how often it was replaced in place since it was started
	LastExit string    `json:"lastExit,omitempty"`
}

// New returns a child. It checks the version of the binary.
func New(ctx context.Context, o Options) (*Child, error) {
	c := &Child{o: o, settings: o.Settings, replace: make(chan struct{}, 1)}
	var err error
	c.status.Version, err = Version(ctx, o.Path)
	return c, err
}

var versionText = regexp.MustCompile(`version: \S*/(1\.(\d+)\.\d+)`)

// Version returns the version of a binary, and an error if it is missing or too old.
func Version(ctx context.Context, path string) (string, error) {
	path, err := exec.LookPath(path)
	if err != nil {
		return "", fmt.Errorf("envoy.path: %w: install Envoy, name its binary, or run with --no-envoy", err)
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	found := versionText.FindSubmatch(out)
	if err != nil || found == nil {
		return "", errors.Join(fmt.Errorf("envoy.path: %s does not say which Envoy it is: name another binary", path), err)
	}
	if minor, _ := strconv.Atoi(string(found[2])); minor < minMinor {
		return "", fmt.Errorf("envoy.path: %s is Envoy %s: use 1.%d or later", path, found[1], minMinor)
	}
	return string(found[1]), nil
}

// validatesWithin bounds Validate. An Envoy says within a second what it thinks, on a machine that is
// not busy.
const validatesWithin = 30 * time.Second

// Validate has an Envoy look at a bootstrap, as it does at its start, without running by it. The error
// is what it says.
func Validate(ctx context.Context, path, bootstrap string, how Settings) error {
	ctx, cancel := context.WithTimeout(ctx, validatesWithin)
	defer cancel()
	c := exec.CommandContext(ctx, path, append([]string{"--mode", "validate", "-c", bootstrap, "--log-level", "error"}, how.Args...)...)
	c.Env = append(os.Environ(), how.Env...)
	out, err := c.CombinedOutput()
	if err == nil {
		return nil
	}
	if said := strings.TrimSpace(string(out)); said != "" && ctx.Err() == nil {
		lines := strings.Split(said, "\n")
		return fmt.Errorf("the Envoy refuses the bootstrap: %s", logPrefix.ReplaceAllString(lines[len(lines)-1], ""))
	}
	return fmt.Errorf("the bootstrap cannot be checked: %w", err)
}

// logPrefix begins a line of Envoy's log.
var logPrefix = regexp.MustCompile(`^(\[[^\]]*\])+ (\[[^\]]*\] )?`)

// Settings returns how the next Envoy runs.
func (c *Child) Settings() Settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settings
}

// Configure says how the next Envoy runs, and how long the present one drains at the end.
func (c *Child) Configure(s Settings) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.settings = s
}

// Status returns what is known now.
func (c *Child) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

// Replace starts another Envoy that takes over the sockets of the present one, which then drains
// and ends: a new binary or bootstrap comes in without a lost request
// (https://www.envoyproxy.io/docs/envoy/latest/intro/arch_overview/operations/hot_restart).
func (c *Child) Replace() {
	select {
	case c.replace <- struct{}{}:
	default: // one is due already
	}
}

// replaceAgain is how long an Envoy that starts has before it is to be replaced again.
const replaceAgain = 200 * time.Millisecond

// stable is how long an Envoy has to run for the next restart to be a quick one.
const stable = 30 * time.Second

// Run keeps an Envoy running until ctx ends; then it drains it and waits for its end.
func (c *Child) Run(ctx context.Context) error {
	wait := retry.New(100*time.Millisecond, 10*time.Second)
	for {
		began := time.Now()
		err := c.run(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > stable {
			wait.Reset()
		}
		c.mu.Lock()
		failed := !c.configured && time.Since(c.status.Since) < stable
		c.status.Restarts++
		c.status.PID, c.status.LastExit, c.older = 0, fmt.Sprint(err), nil
		c.mu.Unlock()
		c.o.Logger.Error("Envoy has ended and is started again", "err", err)
		if failed && c.o.Failed != nil {
			c.o.Failed(err)
		}
		if wait.Wait(ctx) != nil {
			return nil
		}
	}
}

// run runs an Envoy and those that replace it, until the last of them ends. It waits for all.
func (c *Child) run(ctx context.Context) error {
	base := filepath.Join(c.o.Dir, "envoy-base-id")
	_ = os.Remove(base)
	now, err := c.start(0, "--use-dynamic-base-id", "--base-id-path", base)
	if err != nil {
		return err
	}
	var old []*childprocess.Process
	defer func() {
		for _, p := range old {
			p.Stop(time.Second)
		}
	}()
	for epoch := 1; ; {
		select {
		case <-ctx.Done():
			c.drain(now)
			now.Stop(5 * time.Second)
			return nil
		case <-now.Done():
			return now.Cause()
		case <-c.replace:
			id, err := os.ReadFile(base)
			if err != nil {
				// It has not started yet.
				defer time.AfterFunc(replaceAgain, c.Replace).Stop()
				continue
			}
			next, err := c.start(epoch, "--base-id", strings.TrimSpace(string(id)))
			if err != nil {
				c.o.Logger.Error("Envoy is not replaced", "err", err)
				continue
			}
			old, now = append(old, now), next
			c.mu.Lock()
			c.older = slices.Clone(old)
			c.mu.Unlock()
			epoch++
		}
	}
}

// start starts one Envoy. The one before it ends a second after its connections. What drains is told
// at once: each response over HTTP ends its connection.
func (c *Child) start(epoch int, args ...string) (*childprocess.Process, error) {
	how := c.Settings()
	seconds := max(1, int(how.ListenerDrain.Seconds()))
	args = append(args, "-c", c.o.Bootstrap, "--restart-epoch", strconv.Itoa(epoch), "--drain-time-s", strconv.Itoa(seconds),
		"--drain-strategy", "immediate", "--parent-shutdown-time-s", strconv.Itoa(seconds+1))
	if !slices.Contains(how.Args, "--log-level") && !slices.Contains(how.Args, "-l") {
		args = append(args, "--log-level", "warning")
	}
	p, err := childprocess.Start(childprocess.Command{Path: c.o.Path, Args: append(args, how.Args...), Env: how.Env, Output: c.o.Output})
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.status.PID, c.status.Since, c.status.Epoch = p.PID(), time.Now().UTC(), epoch
	c.configured = false
	c.mu.Unlock()
	c.o.Logger.Info("Envoy is started", "pid", p.PID(), "epoch", epoch, "version", c.status.Version)
	return p, nil
}

// drain asks the Envoy to end its connections, and waits until it has none, or the drain time has
// passed.
func (c *Child) drain(p *childprocess.Process) {
	ctx, cancel := context.WithTimeout(context.Background(), c.Settings().Drain)
	defer cancel()
	for _, path := range []string{"/healthcheck/fail", "/drain_listeners?graceful"} {
		if _, err := c.admin(ctx, http.MethodPost, path); err != nil {
			c.o.Logger.Warn("Envoy cannot be drained", "err", err)
			return
		}
	}
	for retry.Sleep(ctx, 50*time.Millisecond) == nil && p.Running() {
		text, err := c.admin(ctx, http.MethodGet, "/stats?filter=%5Elistener%5C..*downstream_cx_active%24")
		if err == nil && connections(text) == 0 {
			return
		}
	}
}

// UnderWay is what of others is under way in the workload: requests, with connections without
// HTTP, and open connections of HTTP, which may bring more requests.
type UnderWay struct {
	Requests    int `json:"requests"`
	Connections int `json:"connections"`
}

// UnderWay asks the Envoy. What comes to ports of no service does not count.
func (c *Child) UnderWay(ctx context.Context) (UnderWay, error) {
	text, err := c.admin(ctx, http.MethodGet, "/stats?filter=%5E(cluster%5C.inbound.*upstream_rq%7Chttp%5C.inbound_.*downstream_cx)_active%24")
	return underWay(text), err
}

func underWay(text string) (out UnderWay) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		n, err := strconv.Atoi(value)
		switch {
		case err != nil:
		case strings.HasPrefix(name, "http."):
			out.Connections += n
		default:
			out.Requests += n
		}
	}
	return out
}

// connections sums gauges of listeners other than that of the admin interface.
func connections(text string) (sum int) {
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if n, err := strconv.Atoi(value); err == nil && !strings.HasPrefix(name, "listener.admin.") && !strings.Contains(name, ".worker_") {
			sum += n
		}
	}
	return sum
}

// Metrics returns those of Envoy that have a value, in Prometheus' text format; if a filter is not
// empty, those whose names in Envoy match this regular expression.
func (c *Child) Metrics(ctx context.Context, filter string) (string, error) {
	path := "/stats/prometheus?usedonly"
	if filter != "" {
		path += "&filter=" + url.QueryEscape(filter)
	}
	return c.admin(ctx, http.MethodGet, path)
}

// Live says whether the Envoy with this interface takes connections: it has started, has its first
// configuration, and does not drain.
func Live(ctx context.Context, admin string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	text, err := ask(ctx, http.MethodGet, admin, "/ready")
	return err == nil && strings.TrimSpace(text) == live
}

// live is the state of an Envoy that takes connections.
const live = "LIVE"

// Ready returns why the Envoy takes no requests, nil if it does: it is live, and has had its
// clusters and listeners, from a server or as they were last. An Envoy that is replaced in place
// takes requests until its successor does.
func (c *Child) Ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	c.mu.Lock()
	pid, configured := c.status.PID, c.configured
	replaced := slices.ContainsFunc(c.older, (*childprocess.Process).Running)
	c.mu.Unlock()
	if pid == 0 {
		return errors.New("the Envoy does not run")
	}
	err := c.ready(ctx, configured)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.status.PID == pid {
		c.configured = true
	}
	if replaced && !c.configured {
		return nil
	}
	return err
}

// answersWithin bounds the wait for Envoy's own interface.
const answersWithin = 3 * time.Second

func (c *Child) ready(ctx context.Context, configured bool) error {
	state, err := c.admin(ctx, http.MethodGet, "/ready")
	if err != nil {
		return errors.New("the Envoy does not answer")
	}
	if state = strings.TrimSpace(state); state != live {
		return fmt.Errorf("the Envoy is %s", state)
	}
	if configured {
		return nil
	}
	// After a time an Envoy is live without any configuration.
	text, err := c.admin(ctx, http.MethodGet, "/stats?filter=%5E(cluster_manager.cds%7Clistener_manager.lds).update_success%24")
	if err != nil {
		return errors.New("the Envoy does not answer")
	}
	for _, name := range []string{"cluster_manager.cds", "listener_manager.lds"} {
		if !strings.Contains(text, name+".update_success: ") || strings.Contains(text, name+".update_success: 0\n") {
			return errors.New("the Envoy has no configuration yet")
		}
	}
	return nil
}

func (c *Child) admin(ctx context.Context, method, path string) (string, error) {
	return ask(ctx, method, c.o.Admin, path)
}

func ask(ctx context.Context, method, admin, path string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+admin+path, nil)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}
