package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

func local(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

func (d *demo) server() string { return "http://" + local(d.ports.api) }

// serve starts the control plane, which runs until it is killed or the demo ends, and waits
// until it is ready.
func (d *demo) serve(ctx context.Context) error {
	args := []string{"serve", "--data-dir", d.path("data"), "--api-address", local(d.ports.api), "--xds-address", local(d.ports.xds)}
	d.console.typed(d.commandText(args) + " &")
	began := time.Now()
	p, err := launch(d.dir, "portolan", portolanBinary, args...)
	if err != nil {
		return err
	}
	d.portolan = p
	err = d.await(ctx, "the control plane is ready", func() error {
		if err := p.ended(); err != nil {
			return fmt.Errorf("%w (it will not come)", err)
		}
		_, err := get(ctx, "", d.server()+"/readyz")
		return err
	})
	if err == nil {
		d.console.say("ready after %d ms", time.Since(began).Milliseconds())
	}
	return err
}

// commandText returns a command in the form that a user would type.
func (d *demo) commandText(args []string) string {
	return "bin/portolan " + strings.ReplaceAll(strings.Join(args, " "), d.dir, "$DEMO")
}

// command runs the command line.
func (d *demo) command(ctx context.Context, args ...string) *exec.Cmd {
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "$DEMO", d.dir)
	}
	c := exec.CommandContext(ctx, portolanBinary, args...)
	c.Env = append(os.Environ(), "PORTOLAN_SERVER="+d.server())
	return c
}

// show runs a command visibly and returns its exit code.
func (d *demo) show(ctx context.Context, args ...string) int {
	d.console.typed(d.commandText(args))
	c := d.command(ctx, args...)
	out, _ := c.CombinedOutput() // the exit code shows failures
	d.console.quote(strings.ReplaceAll(string(out), d.dir, "$DEMO"))
	return c.ProcessState.ExitCode()
}

// output runs a command that must succeed, and returns its output.
func (d *demo) output(ctx context.Context, args ...string) (string, error) {
	out, err := d.command(ctx, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", d.commandText(args), err)
	}
	return string(out), nil
}

var revisionOf = regexp.MustCompile(`\brev (\d+)`)

// apply applies a file from the demo's directory and returns its revision.
func (d *demo) apply(ctx context.Context, file string) (int, error) {
	args := []string{"apply", "-f", "$DEMO/" + file}
	d.console.typed(d.commandText(args))
	out, err := d.output(ctx, args...)
	if err != nil {
		return 0, err
	}
	d.console.quote(out)
	revision := 0
	for _, match := range revisionOf.FindAllStringSubmatch(out, -1) {
		n, err := strconv.Atoi(match[1])
		if err != nil {
			return 0, err
		}
		revision = max(revision, n)
	}
	return revision, nil
}

// applyAndAck applies a file and prints how long both proxies took to acknowledge it.
func (d *demo) applyAndAck(ctx context.Context, file string) error {
	seconds, count, err := d.ackTimes(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	revision, err := d.apply(ctx, file)
	if err != nil {
		return err
	}
	if err := d.awaitAck(ctx, revision); err != nil {
		return err
	}
	took := time.Since(began)
	secondsNow, countNow, err := d.ackTimes(ctx)
	if err != nil {
		return err
	}
	inside := ""
	if n := countNow - count; n > 0 {
		inside = fmt.Sprintf("; from the store's commit to a proxy's ACK %.1f ms", 1000*(secondsNow-seconds)/n)
	}
	d.console.say("acknowledged by both proxies %d ms after Enter%s", took.Milliseconds(), inside)
	return nil
}

// proxyStatus is the part of `proxy status -o json` that the demo reads.
type proxyStatus struct {
	Items []struct {
		Name     string
		Revision int
		Types    []struct{ Name, State, Message string }
	}
}

// awaitAck waits until both proxies have acknowledged a revision. It polls with the command
// that a user would use.
func (d *demo) awaitAck(ctx context.Context, revision int) error {
	return d.await(ctx, fmt.Sprintf("both proxies acknowledge revision %d", revision), func() error {
		out, err := d.output(ctx, "proxy", "status", "-o", "json")
		if err != nil {
			return err
		}
		var status proxyStatus
		if err := json.Unmarshal([]byte(out), &status); err != nil {
			return err
		}
		if len(status.Items) != 2 {
			return fmt.Errorf("%d proxies are connected", len(status.Items))
		}
		for _, p := range status.Items {
			if p.Revision < revision {
				return fmt.Errorf("%s is at revision %d", p.Name, p.Revision)
			}
			for _, t := range p.Types {
				if t.Name == "SDS" && t.State == "NOT SENT" {
					continue // the proxy needs no secret
				}
				if t.State != "SYNCED" {
					return fmt.Errorf("%s: %s is %s %s", p.Name, t.Name, t.State, t.Message)
				}
			}
		}
		return nil
	})
}

// counts holds numbers by type of resource.
type counts map[string]int

func (c counts) minus(earlier counts) counts {
	out := counts{}
	for name, n := range c {
		if n -= earlier[name]; n != 0 {
			out[name] = n
		}
	}
	return out
}

// only says whether there are resources of this type and of no other.
func (c counts) only(name string) bool { return len(c) == 1 && c[name] > 0 }

// String formats counts, as in "EDS 2, RDS 1".
func (c counts) String() string {
	var parts []string
	for name, n := range c {
		parts = append(parts, fmt.Sprintf("%s %d", name, n))
	}
	slices.Sort(parts)
	if len(parts) == 0 {
		return "nothing"
	}
	return strings.Join(parts, ", ")
}

// responses returns how many responses the server has sent since it started, by type.
func (d *demo) responses(ctx context.Context) (counts, error) {
	return d.byType(ctx, "portolan_xds_responses_total")
}

// resources returns how many resources the server has sent since it started, by type.
func (d *demo) resources(ctx context.Context) (counts, error) {
	return d.byType(ctx, "portolan_xds_resources_sent_total")
}

var ofType = regexp.MustCompile(`\{type="(\w+)"\} (\S+)$`)

func (d *demo) byType(ctx context.Context, metric string) (counts, error) {
	out := counts{}
	err := d.metric(ctx, metric+"{", func(line string) error {
		match := ofType.FindStringSubmatch(line)
		if match == nil {
			return fmt.Errorf("the metric %q cannot be read", line)
		}
		n, err := strconv.ParseFloat(match[2], 64)
		if n != 0 {
			out[match[1]] = int(n)
		}
		return err
	})
	return out, err
}

// ackTimes returns the sum and the number of the times from commit to ACK.
func (d *demo) ackTimes(ctx context.Context) (seconds, count float64, err error) {
	const name = "portolan_apply_to_ack_seconds_"
	err = d.metric(ctx, name, func(line string) error {
		var err error
		switch field, value, _ := strings.Cut(strings.TrimPrefix(line, name), " "); field {
		case "sum":
			seconds, err = strconv.ParseFloat(value, 64)
		case "count":
			count, err = strconv.ParseFloat(value, 64)
		}
		return err
	})
	return seconds, count, err
}

// metric calls f with every line of the server's metrics that has the prefix.
func (d *demo) metric(ctx context.Context, prefix string, f func(line string) error) error {
	text, err := get(ctx, "", d.server()+"/metrics")
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		if !strings.HasPrefix(lines.Text(), prefix) {
			continue
		}
		if err := f(lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}
