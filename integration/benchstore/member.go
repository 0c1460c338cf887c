package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// bench has what a section works with.
type bench struct {
	options
	*report
	// plain is the client of the plain loops, ours the client of the store and the cache.
	plain, ours *clientv3.Client
	dial        func() (*clientv3.Client, error)
}

// onMember runs measure with a new member.
func onMember(ctx context.Context, o options, measure func(*bench) error) (err error) {
	dir, err := os.MkdirTemp(o.dir, "benchstore")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	child, err := member.NewChild(member.ChildOptions{DataDir: filepath.Join(dir, "data"), Args: []string{childArg}})
	if err != nil {
		return err
	}
	if _, err := child.Start(ctx); err != nil {
		return fmt.Errorf("start the member: %w", err)
	}
	defer func() { err = errors.Join(err, child.Close()) }()
	b := &bench{options: o, dial: func() (*clientv3.Client, error) { return child.Dial(nil) }}
	for _, client := range []**clientv3.Client{&b.plain, &b.ours} {
		if *client, err = b.dial(); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, (*client).Close()) }()
	}
	return measure(b)
}

// store returns a store configured as serve does.
func store(client *clientv3.Client) (*etcd.Store, error) {
	return etcd.New(client, etcd.Options{
		Schemas: schema.Pilot(), Domain: "cluster.local",
		MaxTxnOps: member.MaxTxnOps, MaxRequestBytes: member.MaxRequestBytes, RequestTimeout: time.Minute,
	})
}
