// Grpcpeer is a gRPC server or client of the integration tests, in Go. It is a separate program
// so that it reads its configuration as any other would: from the file that GRPC_XDS_BOOTSTRAP
// names.
//
//	grpcpeer serve --name v1 --listen 127.0.0.1:9001 [--xds]
//	grpcpeer front --listen 127.0.0.1:8080 [--through 127.0.0.1:9080]
//
// A server answers every call with a description of it, as JSON (server.go). A front accepts
// HTTP and turns each request into a call (front.go). So the tests send requests through a gRPC
// client as they do through an Envoy. With --through it calls by a proxy, as a program that knows no
// xDS. The fronts in other languages, in ../testdata/grpc, do
// the same.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "grpcpeer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("say serve or front")
	}
	flags := flag.NewFlagSet("grpcpeer "+args[0], flag.ContinueOnError)
	listen := flags.String("listen", "", "address to listen on")
	name := flags.String("name", "", "name that the server answers with")
	xds := flags.Bool("xds", false, "have the control plane configure the server")
	through := flags.String("through", "", "address of a proxy to call by")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "serve":
		return serve(ctx, *listen, *name, *xds)
	case "front":
		return front(ctx, *listen, *through)
	}
	return fmt.Errorf("%q: say serve or front", args[0])
}
