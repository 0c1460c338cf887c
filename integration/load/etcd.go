package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd/dial"
	"github.com/portolan-mesh/portolan/storage/etcd/member"
)

// etcdArg makes this program run an etcd.
const etcdArg = "etcd"

// etcdServer is an etcd in a process of its own.
type etcdServer struct {
	child
	address string
}

// startEtcd starts an etcd whose files are in a directory.
func startEtcd(ctx context.Context, dir string) (*etcdServer, error) {
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	started, m, err := startChild(ctx, exec.Command(own, etcdArg, dir), filepath.Join(dir, "etcd.log"), listening)
	if err != nil {
		return nil, err
	}
	return &etcdServer{child: started, address: m[1]}, nil
}

// etcdFlag is the flag of a server that names the etcd of its store.
const etcdFlag = "--etcd-endpoints"

// flags returns the flags of a server whose store it is.
func (e *etcdServer) flags() []string {
	return []string{
		etcdFlag, e.address, "--etcd-max-txn-ops", fmt.Sprint(member.MaxTxnOps), "--etcd-max-request-bytes", fmt.Sprint(member.MaxRequestBytes),
	}
}

// watch begins a bare watch of an object of a server's store.
func (e *etcdServer) watch(ctx context.Context, object *config.Config) (*watching, error) {
	client, err := dial.New(dial.Options{Endpoints: []string{e.address}})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	events := client.Watch(ctx, "/portolan/", clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	if created, ok := <-events; !ok || created.Err() != nil {
		cancel()
		return nil, errors.Join(errors.New("watch etcd"), created.Err(), client.Close())
	}
	about := func(e *clientv3.Event) bool { return strings.HasSuffix(string(e.Kv.Key), object.Key().Path()) }
	return watchBy(ctx, func() { cancel(); _ = client.Close() }, func() error {
		for response := range events {
			if response.Err() != nil || slices.ContainsFunc(response.Events, about) {
				return response.Err()
			}
		}
		return io.EOF
	}), nil
}

// freePort returns a port of the loopback on which nobody listens.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}

// beEtcd runs an etcd, with its data in a directory, until ctx ends.
func beEtcd(ctx context.Context, dir string) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	at := url.URL{Scheme: "http", Host: fmt.Sprintf("127.0.0.1:%d", port)}
	c := embed.NewConfig()
	c.Dir, c.LogLevel = filepath.Join(dir, "data"), "error"
	c.MaxTxnOps, c.MaxRequestBytes = member.MaxTxnOps, member.MaxRequestBytes
	c.ListenClientUrls, c.AdvertiseClientUrls, c.ListenPeerUrls = []url.URL{at}, []url.URL{at}, nil
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	defer etcd.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-etcd.Err():
		return err
	case <-etcd.Server.ReadyNotify():
	}
	fmt.Fprintf(os.Stderr, "listening on %s\n", at.Host)
	select {
	case <-ctx.Done():
		return nil
	case err := <-etcd.Err():
		return err
	}
}

// watching is a bare watch of one object.
type watching struct {
	events chan sight
	stop   func()
}

// sight is when the object, or a change of it, was seen.
type sight struct {
	at  time.Time
	err error // of the watch, which has ended
}

// watchBy makes a watch of a function that waits for the next event. end makes that fail.
func watchBy(ctx context.Context, end func(), next func() error) *watching {
	w := &watching{events: make(chan sight, 100)}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			err := next()
			select {
			case w.events <- sight{time.Now(), err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	w.stop = func() { end(); running.Wait() }
	return w
}

// after waits until the watch has seen something after a time, and returns when.
func (w *watching) after(ctx context.Context, began time.Time) (time.Time, error) {
	for {
		select {
		case s := <-w.events:
			if s.err != nil || s.at.After(began) {
				return s.at, s.err
			}
		case <-ctx.Done():
			return time.Time{}, ctx.Err()
		}
	}
}
