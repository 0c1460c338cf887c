// Command demo shows Portolan's main job to a person, from an empty store to
// traffic that follows its configuration and survives the control plane:
//
//	make demo
//
// It runs the real binary, stock Envoys and small services on free ports of 127.0.0.1. It does
// what a user would do, and checks what it claims. Then it waits for Ctrl-C and cleans up.
// With ONCE=1 it exits after the last step, with a status that says whether every claim held.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"
)

// demo is a run of the demonstration.
type demo struct {
	dir      string            // directory of all files that it writes
	free     *strings.Replacer // has free ports for those of the quickstart
	terminal bool
	steps    int // number of steps that have begun
	broken   int // number of claims that did not hold

	ctx     context.Context // of the steps
	fail    func(error)     // ends the steps
	life    context.Context // of the programs and the counters
	running sync.WaitGroup  // the programs and the counters
	traffic []*counter      // through the gateway and through the sidecar
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Getenv("ONCE") != ""))
}

// run shows everything and returns the exit status.
func run(ctx context.Context, once bool) int {
	d := &demo{terminal: term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("TERM") != "dumb"}
	if err := d.prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	d.ctx, d.fail = context.WithCancelCause(ctx)
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	d.life = life
	var steps sync.WaitGroup
	steps.Go(d.play)
	steps.Wait()
	err, interrupted := context.Cause(d.ctx), ctx.Err() != nil
	switch {
	case interrupted:
		d.say("Interrupted.")
	case err != nil:
		d.claim(false, "%v", err)
	case !once:
		d.whatNext(ctx)
	}
	end()
	d.running.Wait()
	if d.broken > 0 {
		d.say("%d claims did not hold: look for NOT SO. The logs are kept in %s", d.broken, d.dir)
	} else if err := os.RemoveAll(d.dir); err != nil {
		d.claim(false, "%v", err)
	} else {
		d.say("Everything that the demo started has ended, and what it wrote is gone.")
	}
	if d.broken > 0 || interrupted && once {
		return 1
	}
	return 0
}

// prepare finds a free port for each of the quickstart, and makes the directory.
func (d *demo) prepare() (err error) {
	for _, path := range []string{"bin/portolan", ".tools/envoy", "examples/quickstart"} {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: run make demo at the root of the repository", err)
		}
	}
	var pairs []string
	fixed := []string{"15080", "15010", "15000", "15002", "8080", "9080", "9001", "9002", "9003"}
	// Below the kernel's ephemeral ports, so that they stay free.
	for port := 20000 + rand.IntN(10000); len(fixed) > 0; port++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			pairs = append(pairs, fixed[0], strconv.Itoa(port))
			fixed, err = fixed[1:], l.Close()
		}
		if err != nil && port > 32000 {
			return fmt.Errorf("too few ports are free: %w", err)
		}
	}
	d.free = strings.NewReplacer(pairs...)
	d.dir, err = os.MkdirTemp("", "portolan-demo-")
	return err
}

// must ends the steps if there is an error, the first of which counts.
func (d *demo) must(err error) {
	if err != nil {
		d.fail(err)
		runtime.Goexit()
	}
}

// claim prints a claim of the demo, and counts it if it does not hold.
func (d *demo) claim(holds bool, format string, args ...any) {
	if !holds {
		d.broken++
		format = "NOT SO: " + format
	}
	d.say(format, args...)
}

// await waits until check returns nil.
func (d *demo) await(what string, check func() error) {
	limit := time.Now().Add(30 * time.Second)
	for range time.Tick(10 * time.Millisecond) {
		err := check()
		if err == nil {
			return
		}
		if d.ctx.Err() != nil || time.Now().After(limit) {
			d.must(fmt.Errorf("%s: not within 30 s: %w", what, err))
		}
		d.live()
	}
}

func (d *demo) step(title string) {
	d.steps++
	d.write(fmt.Sprintf("\n%2d  %s\n", d.steps, title))
}

func (d *demo) say(format string, args ...any) { d.write("    " + fmt.Sprintf(format, args...) + "\n") }

// typed prints a command that a user could type.
func (d *demo) typed(command string) { d.say("$ %s", d.free.Replace(command)) }

// quote prints the output of a command.
func (d *demo) quote(output []byte) {
	for line := range strings.Lines(strings.ReplaceAll(string(output), d.dir, "$DEMO")) {
		d.write("      " + line)
	}
}

// live brings the line below the text up to date, on a terminal. The line never gets shorter.
func (d *demo) live() {
	if !d.terminal || d.traffic == nil {
		return
	}
	line := "\r  "
	for _, c := range d.traffic {
		sum := c.since(tally{})
		line += fmt.Sprintf(" [%s %d answered, %d failed]", c.name, sum.requests-sum.failed, sum.failed)
	}
	fmt.Print(line)
}

// write writes text in the place of the live line.
func (d *demo) write(text string) {
	if d.terminal {
		text = "\r\x1b[K" + text
	}
	fmt.Print(text)
}
