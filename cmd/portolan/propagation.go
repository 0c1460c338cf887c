package main

import (
	"context"
	"fmt"
	"os"

	"github.com/google/uuid"

	"github.com/portolan-mesh/portolan/storage/etcd/election"
	"github.com/portolan-mesh/portolan/xds/propagation"
)

// statusWriter is the job that writes the statuses of objects.
type statusWriter struct{ *propagation.Writer }

// run implements job.
func (w statusWriter) run(ctx context.Context, leader *election.Leader) error {
	return w.Run(ctx, leader)
}

func (s *server) statusWriter() statusWriter {
	return statusWriter{&propagation.Writer{Store: s.configs, Side: s.side, Logger: s.logger}}
}

// addReporter makes what tells the other servers of the proxies of this one. Its id
// is of this run: a server that is started again is another one.
func (s *server) addReporter() error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("the name of this machine: %w", err)
	}
	s.reporter = &propagation.Reporter{
		ID:     fmt.Sprintf("%s:%d/%.8s", host, os.Getpid(), uuid.NewString()),
		Client: s.store.client, Store: s.configs, Side: s.side, Server: s.xds, Logger: s.logger,
	}
	return nil
}

// view is how far changes have come, as this server sees it.
func (s *server) view() *propagation.View {
	return &propagation.View{ID: s.reporter.ID, Server: s.xds, Side: s.side}
}
