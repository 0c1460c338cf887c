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

// A job is what one of all servers of a store does at a time: its leader. All
// that it writes goes through the leader, so that nothing of it lands once there
// is another.
type job interface {
	// run does the job until ctx ends, which is also when the leader is another,
	// and returns nil then. An error ends the term, and the jobs are begun anew by
	// whoever leads next.
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

// run does all jobs whenever this server leads.
func (j *jobs) run(ctx context.Context) error {
	return j.Run(ctx, func(ctx context.Context, leader *election.Leader) error {
		group, ctx := errgroup.WithContext(ctx)
		for _, one := range j.all {
			group.Go(func() error { return one.run(ctx, leader) })
		}
		return group.Wait()
	})
}
