// Command service is the reviews service of the quickstart: an instance answers every request
// with its version. Without flags the program runs the three instances in shop.yaml.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

func main() {
	version := flag.String("version", "v1", "what the one instance answers")
	address := flag.String("address", "127.0.0.1:9001", "where the one instance listens")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	instances := map[string]string{*address: *version}
	if flag.NFlag() == 0 {
		instances = map[string]string{"127.0.0.1:9001": "v1", "127.0.0.1:9002": "v2", "127.0.0.1:9003": "v2"}
	}
	group, ctx := errgroup.WithContext(ctx)
	for address, version := range instances {
		group.Go(func() error { return serve(ctx, address, version) })
	}
	if err := group.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// serve answers requests until ctx ends, then finishes those under way.
func serve(ctx context.Context, address, version string) error {
	server := &http.Server{
		Addr:              address,
		ReadHeaderTimeout: 5 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, "reviews %s\n", version)
		}),
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err := server.Shutdown(limit)
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}
