// Command backends runs every service of services.yaml on this machine. Over HTTP an instance
// answers with its name; some paths do more:
//
//	/delay/SECONDS  it answers after that time
//	/status/CODE    it answers with that status
//	/calls          how many requests reached it, these to /calls and /break left out
//	/break/CODE     from now on it answers each request with that status
//
// Over TCP an instance answers each line with its name and the line.
package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
)

// The instances, by their addresses in services.yaml.
var (
	overHTTP = map[string]string{
		"127.0.0.1:9181": "reviews v1", "127.0.0.1:9182": "reviews v2", "127.0.0.1:9183": "reviews v3",
		"127.0.0.1:9184": "ratings v1",
		"127.0.0.1:9185": "httpbin v1", "127.0.0.1:9186": "httpbin v2",
		"127.0.0.1:9187": "helloworld eu", "127.0.0.1:9188": "helloworld us",
		"127.0.0.1:9189": "outside",
	}
	overTCP = map[string]string{"127.0.0.1:9191": "one", "127.0.0.1:9192": "two"}
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	for address, name := range overHTTP {
		group.Go(func() error { return serveHTTP(ctx, address, name) })
	}
	for address, name := range overTCP {
		group.Go(func() error { return serveTCP(ctx, address, name) })
	}
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, "backends:", err)
		os.Exit(1)
	}
}

// serveHTTP serves an HTTP instance until ctx ends.
func serveHTTP(ctx context.Context, address, name string) error {
	var calls, broken atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/calls", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, calls.Load()) })
	mux.HandleFunc("/break/{code}", func(_ http.ResponseWriter, r *http.Request) {
		if code, err := strconv.ParseInt(r.PathValue("code"), 10, 32); err == nil && code >= 200 && code <= 599 {
			broken.Store(code)
		}
	})
	answer := func(w http.ResponseWriter, status int) {
		if calls.Add(1); broken.Load() != 0 {
			status = int(broken.Load())
		}
		w.WriteHeader(status)
		fmt.Fprintln(w, name)
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { answer(w, http.StatusOK) })
	mux.HandleFunc("/status/{code}", func(w http.ResponseWriter, r *http.Request) {
		code, err := strconv.Atoi(r.PathValue("code"))
		if err != nil || code < 200 || code > 599 {
			code = http.StatusBadRequest
		}
		answer(w, code)
	})
	mux.HandleFunc("/delay/{seconds}", func(w http.ResponseWriter, r *http.Request) {
		seconds, _ := strconv.ParseFloat(r.PathValue("seconds"), 64)
		select {
		case <-time.After(time.Duration(seconds * float64(time.Second))):
		case <-r.Context().Done():
		}
		answer(w, http.StatusOK)
	})
	server := &http.Server{Addr: address, ReadHeaderTimeout: 5 * time.Second, Handler: mux}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	return server.ListenAndServe()
}

// serveTCP serves a TCP instance until ctx ends.
func serveTCP(ctx context.Context, address, name string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = connection.Close() }()
			lines := bufio.NewScanner(connection)
			for lines.Scan() {
				fmt.Fprintln(connection, name, strings.TrimSpace(lines.Text()))
			}
		}()
	}
}
