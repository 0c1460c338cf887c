package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
)

// command returns a command for the shell, with what the user is told to export. When ctx ends
// it is asked to end, and killed if it does not.
func (d *demo) command(ctx context.Context, text string) *exec.Cmd {
	c := exec.CommandContext(ctx, "sh", "-c", d.free.Replace(text))
	c.Env = append(os.Environ(), "DEMO="+d.dir, d.free.Replace("PORTOLAN_SERVER="+server))
	// A Ctrl-C in the terminal goes to the demo's process group, and not to this one.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = 8 * time.Second
	return c
}

// show types a command, runs it and quotes its output, with the error output if it fails. Its
// exit code must be 0 or one of the others.
func (d *demo) show(text string, others ...int) (code int) {
	d.typed(text)
	c := d.command(d.ctx, text)
	out, err := c.Output()
	d.must(d.ctx.Err())
	d.quote(out)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		d.quote(exit.Stderr)
	}
	if code = c.ProcessState.ExitCode(); err != nil && !slices.Contains(others, code) {
		d.must(fmt.Errorf("%s: %w", text, err))
	}
	return code
}

// start types a command and starts it, with its output in a log of this name. The steps fail if
// it ends by itself. The result kills it as kill -9 does.
func (d *demo) start(name, text string) (kill func(what string)) {
	d.typed(text + " &")
	c := d.command(d.life, "exec "+text+" >>$DEMO/"+name+".log 2>&1")
	d.must(c.Start())
	var killed atomic.Bool
	ended := make(chan struct{})
	d.running.Go(func() {
		defer close(ended)
		_ = c.Wait() // ProcessState says how it ended
		if !killed.Load() {
			log, _ := os.ReadFile(filepath.Join(d.dir, name+".log"))
			lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
			d.fail(fmt.Errorf("%s has ended: %s: %s", name, c.ProcessState, lines[len(lines)-1]))
		}
	})
	return func(what string) {
		d.say("$ kill -9 %d    # %s", c.Process.Pid, d.free.Replace(what))
		killed.Store(true)
		_ = c.Process.Kill() // it fails only if the program has just ended
		<-ended
	}
}
