package member

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
)

// clientWithin is a client that calls etcd in this process.
func clientWithin(etcd *embed.Etcd) *clientv3.Client {
	client := v3client.New(etcd.Server)
	client.Maintenance = maintenance{client.Maintenance}
	return client
}

// maintenance guards the maintenance calls to an etcd in this process. etcd panics when
// it is asked for its status or defragmented after its database was closed, and it may
// close the database at any time.
// https://github.com/sensu/sensu-go/pull/3606
type maintenance struct{ clientv3.Maintenance }

// Status implements clientv3.Maintenance.
func (m maintenance) Status(ctx context.Context, endpoint string) (answer *clientv3.StatusResponse, err error) {
	defer recoverPanic(&err)
	return m.Maintenance.Status(ctx, endpoint)
}

// defragmenting returns a function that defragments etcd in this process.
func defragmenting(etcd *embed.Etcd) func() error {
	return func() (err error) {
		defer recoverPanic(&err)
		return etcd.Server.Backend().Defrag()
	}
}

// recoverPanic turns a panic of etcd into an error.
func recoverPanic(err *error) {
	if v := recover(); v != nil {
		*err = fmt.Errorf("etcd has ended: %v", v)
	}
}
