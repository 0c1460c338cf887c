package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
)

// version is set by the linker.
var version = "unknown"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process
	os.Exit(cli.Run(ctx, whole(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
