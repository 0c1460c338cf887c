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
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	os.Exit(run(ctx, os.Getenv("ONCE") != ""))
}

// run shows everything and returns the exit status.
func run(ctx context.Context, once bool) int {
	d, err := newDemo(newConsole())
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		return 1
	}
	err = d.play(ctx)
	interrupted := ctx.Err() != nil
	switch {
	case interrupted:
		d.console.say("Interrupted.")
	case err != nil:
		d.claim(false, "%v", err)
	}
	if err == nil && !once && !interrupted {
		d.whatNext(ctx)
	}
	failed := len(d.broken)
	d.close(failed > 0)
	if failed > 0 || (interrupted && once) {
		return 1
	}
	return 0
}
