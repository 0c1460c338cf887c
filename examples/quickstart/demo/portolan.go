package main

import (
	"cmp"
	"context"
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

// show shows a command that must succeed.
func (d *demo) show(ctx context.Context, args ...string) error {
	d.console.typed(d.commandText(args))
	out, err := d.output(ctx, args...)
	d.console.quote(out)
	return err
}

// output runs a command that must succeed, and returns its output.
func (d *demo) output(ctx context.Context, args ...string) (string, error) {
	out, err := d.command(ctx, args...).Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", d.commandText(args), err)
	}
	return string(out), nil
}

// apply applies a file and shows how long both proxies took to acknowledge it. It returns how
// much the metrics of the server have grown.
func (d *demo) apply(ctx context.Context, file string) (map[string]float64, error) {
	before, err := d.metrics(ctx)
	if err != nil {
		return nil, err
	}
	began := time.Now()
	if err := d.show(ctx, "apply", "-f", "$DEMO/"+file, "--wait", "--min-proxies", "2"); err != nil {
		return nil, err
	}
	took := time.Since(began)
	grown, err := d.metrics(ctx)
	if err != nil {
		return nil, err
	}
	for series, value := range before {
		grown[series] -= value
	}
	text := fmt.Sprintf("acknowledged by both proxies %d ms after Enter", took.Milliseconds())
	if n := grown["portolan_apply_to_ack_seconds_count"]; n > 0 {
		text += fmt.Sprintf("; from the store's commit to a proxy's ACK %.1f ms", 1000*grown["portolan_apply_to_ack_seconds_sum"]/n)
	}
	d.console.say("%s", text)
	return grown, nil
}

// showProxies shows both proxies as soon as they have everything, and need no secret.
func (d *demo) showProxies(ctx context.Context) error {
	inStep := regexp.MustCompile(`(?m)^\S+ +\S+ +shop( +SYNCED( \S+)?){5} +NOT SENT`)
	args := []string{"proxy", "status"}
	d.console.typed(d.commandText(args))
	var out string
	err := d.await(ctx, "two proxies are in step", func() (err error) {
		if out, err = d.output(ctx, args...); len(inStep.FindAllString(out, -1)) != 2 {
			return fmt.Errorf("%v\n%s", err, out)
		}
		return nil
	})
	d.console.quote(out)
	return err
}

func (d *demo) metrics(ctx context.Context) (map[string]float64, error) {
	text, err := get(ctx, "", d.server()+"/metrics")
	if err != nil {
		return nil, err
	}
	series := map[string]float64{}
	for _, match := range regexp.MustCompile(`(?m)^(portolan_\S+) (\S+)$`).FindAllStringSubmatch(text, -1) {
		if series[match[1]], err = strconv.ParseFloat(match[2], 64); err != nil {
			return nil, err
		}
	}
	return series, nil
}

// byType formats a metric that counts by type of resource, as in "EDS 2, RDS 1".
func byType(series map[string]float64, name string) string {
	var parts []string
	for labeled, n := range series {
		if kind, ok := strings.CutPrefix(labeled, name+`{type="`); ok && n != 0 {
			parts = append(parts, fmt.Sprintf("%s %.0f", strings.TrimSuffix(kind, `"}`), n))
		}
	}
	slices.Sort(parts)
	return cmp.Or(strings.Join(parts, ", "), "nothing")
}
