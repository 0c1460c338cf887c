package xdstest

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/portolan-mesh/portolan/cache"
	cachememory "github.com/portolan-mesh/portolan/cache/memory"
	"github.com/portolan-mesh/portolan/discovery/serviceentry"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/memory"
	"github.com/portolan-mesh/portolan/storage/schema"
	"github.com/portolan-mesh/portolan/storage/sealing"
	"github.com/portolan-mesh/portolan/xds"
	"github.com/portolan-mesh/portolan/xds/export"
	"github.com/portolan-mesh/portolan/xds/generate"
)

// Server is a whole control plane in the test's process, from a store in memory to gRPC on
// loopback, wired as in the product.
type Server struct {
	tb      testing.TB
	worker  *cache.Worker
	entries *serviceentry.Store
	Store   *memory.Store
	// Sealer seals secrets. The server has its keys.
	Sealer *sealing.Sealer
	XDS    *xds.DiscoveryServer

	// Address is where clients Dial.
	Address string
}

// NewServer runs a server for some types. options change the options of the xDS server. It ends
// with the test.
func NewServer(tb testing.TB, types []generate.ResourceType, options ...func(*xds.Options)) *Server {
	tb.Helper()
	return NewServerOn(tb, memory.New(schema.Pilot(), memory.Options{Domain: "cluster.local"}), types, options...)
}

// NewServerOn runs a server on a store. Several servers may share one.
func NewServerOn(tb testing.TB, store *memory.Store, types []generate.ResourceType, options ...func(*xds.Options)) *Server {
	tb.Helper()
	worker := cache.NewWorker()
	configs := cachememory.New(store, cachememory.Options{Worker: worker})
	logger := slog.New(slog.DiscardHandler)
	sealer := newSealer(tb, store)
	o := xds.Options{SealingKeys: sealer.Keys, Configs: configs, Types: types, Logger: logger, Export: export.New(export.Options{Schemas: store.Schemas(), Logger: logger})}
	for _, change := range options {
		change(&o)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{tb: tb, Sealer: sealer, worker: worker, Store: store, XDS: xds.New(o), Address: listener.Addr().String()}
	s.entries = serviceentry.New(serviceentry.Options{XDS: s.XDS, Worker: worker, Configs: configs})
	worker.AtTaskEnd(s.XDS.Commit)
	g := grpc.NewServer(xds.ServerOptions()...)
	s.XDS.Register(g)

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	run := func(part func(context.Context) error) {
		running.Go(func() {
			if err := part(ctx); err != nil {
				tb.Errorf("server: %v", err)
			}
		})
	}
	run(worker.Run)
	run(configs.Run)
	run(s.XDS.Run)
	run(func(context.Context) error {
		err := g.Serve(listener)
		if errors.Is(err, grpc.ErrServerStopped) { // the test ended before Serve began
			err = nil
		}
		return err
	})
	tb.Cleanup(func() {
		g.Stop()
		cancel()
		running.Wait()
	})
	select {
	case <-s.XDS.Published():
	case <-time.After(10 * time.Second):
		tb.Fatal("the server has published nothing for 10 s")
	}
	return s
}

// SetHealth reports a WorkloadEntry to be healthy, or not.
func (s *Server) SetHealth(namespace, name string, healthy bool) {
	s.worker.Post(namespace+"/"+name, func() { s.entries.SetHealth(namespace, name, healthy) })
}

// Objects decodes documents. They must be valid.
func Objects(tb testing.TB, documents ...string) []*config.Config {
	tb.Helper()
	var out []*config.Config
	for _, document := range documents {
		decoded, err := config.Decode("test", []byte(document), schema.Pilot().Type)
		if err != nil {
			tb.Fatalf("decode: %v", err)
		}
		for _, d := range decoded {
			if d.Config.Namespace == "" && !schema.Pilot().Kind(d.Config.GroupVersionKind).ClusterScoped {
				d.Config.Namespace = "default"
			}
			if _, err := schema.Pilot().Kind(d.Config.GroupVersionKind).Validate(d.Config); err != nil {
				tb.Fatalf("%s is not valid: %v", d.Config.Key(), err)
			}
			out = append(out, d.Config)
		}
	}
	return out
}

// Apply creates or replaces the objects in documents as one batch, and returns
// its revision.
func (s *Server) Apply(documents ...string) int64 {
	s.tb.Helper()
	return s.Batch(Ops(s.tb, documents...))
}

// Delete removes the objects in documents as one batch, and returns its
// revision.
func (s *Server) Delete(documents ...string) int64 {
	s.tb.Helper()
	return s.Batch(Removals(s.tb, documents...))
}

// Ops returns the operations that create or replace the objects in documents.
func Ops(tb testing.TB, documents ...string) []storage.Op {
	tb.Helper()
	var ops []storage.Op
	for _, c := range Objects(tb, documents...) {
		ops = append(ops, storage.Op{Verb: storage.Put, Config: c})
	}
	return ops
}

// Removals returns the operations that remove the objects in documents.
func Removals(tb testing.TB, documents ...string) []storage.Op {
	tb.Helper()
	var ops []storage.Op
	for _, c := range Objects(tb, documents...) {
		ops = append(ops, storage.Op{Verb: storage.Delete, Key: c.Key()})
	}
	return ops
}

// Batch applies operations as one revision, and returns it.
func (s *Server) Batch(ops []storage.Op) int64 {
	s.tb.Helper()
	ops = slices.Clone(ops)
	for i := range ops {
		if c := ops[i].Config; c != nil {
			stored, err := s.Store.Get(context.Background(), c.GroupVersionKind, c.Name, c.Namespace)
			if err != nil && !errors.Is(err, storage.ErrNotFound) {
				s.tb.Fatal(err)
			}
			ops[i].Config = sealed(s.tb, s.Sealer, c, stored)
		}
	}
	revision, _, err := s.Store.Apply(context.Background(), ops)
	if err != nil {
		s.tb.Fatalf("apply: %v", err)
	}
	n, err := strconv.ParseInt(revision, 10, 64)
	if err != nil {
		s.tb.Fatal(err)
	}
	return n
}

// Eventually waits until a condition holds; what describes it in the failure.
func Eventually(tb testing.TB, what string, condition func() bool) {
	tb.Helper()
	deadline := time.After(awaitLimit)
	for pause := time.Millisecond; !condition(); pause = min(2*pause, 50*time.Millisecond) {
		select {
		case <-deadline:
			tb.Fatalf("waiting for %s: not within %s", what, awaitLimit)
		case <-time.After(pause):
		}
	}
}
