package main

import (
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/storage/etcd/dial"
)

// externalStore are the flags of an etcd cluster that somebody else runs.
type externalStore struct {
	endpoints []string
}

func (o *externalStore) register(f *pflag.FlagSet) {
	f.StringSliceVar(&o.endpoints, "etcd-endpoints", nil, "host:port of each member of an etcd cluster, instead of the embedded store")
}

func (o *externalStore) validate(add addFault) {
	for i, e := range o.endpoints {
		if strings.HasPrefix(e, "https://") {
			add("etcd-endpoints", "%s: TLS to etcd is not served yet: use host:port of a plaintext listener", e)
		}
		o.endpoints[i] = strings.TrimPrefix(e, "http://")
	}
}

// open makes a client of the cluster.
func (o *externalStore) open(logger *slog.Logger) (*openedStore, error) {
	client, err := dial.New(dial.Options{Endpoints: o.endpoints, Logger: logger})
	if err != nil {
		return nil, err
	}
	return &openedStore{client: client, healthy: func() error { return nil }, close: client.Close}, nil
}
