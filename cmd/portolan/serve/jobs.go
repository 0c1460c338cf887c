package serve

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/portolan-mesh/portolan/storage/etcd/election"
)

// electionName names the election whose leader does all jobs.
const electionName = "server"

// A job is what only one of the servers of a store does at a time, the leader. All its writes
// go through the leader, so that none is done once another server leads.
type job interface {
	// run does the job until ctx ends, and returns nil then. ctx also ends when another server
	// leads. An error ends the term; the next leader starts the jobs anew.
	run(ctx context.Context, leader *election.Leader) error
}

// jobs runs the jobs of a server while it leads.
type jobs struct {
	*election.Election
	all []job
}

func newJobs(client *clientv3.Client, metrics prometheus.Registerer, logger *slog.Logger, all ...job) (*jobs, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("the name of this machine: %w", err)
	}
	e, err := election.New(client, election.Options{Name: electionName, ID: fmt.Sprintf("%s:%d", host, os.Getpid()), Logger: logger})
	if err != nil {
		return nil, err
	}
	return &jobs{Election: e, all: all}, metrics.Register(e)
}

// run runs all jobs while this server leads.
func (j *jobs) run(ctx context.Context) error {
	return j.Run(ctx, func(ctx context.Context, leader *election.Leader) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, one := range j.all {
			group.Go(func() error { return one.run(ctx, leader) })
		}
		return group.Wait()
	})
}
