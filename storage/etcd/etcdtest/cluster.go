package etcdtest

import (
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sync/errgroup"
)

// Cluster runs three members, each on a unix socket of its own, and returns
// their endpoints.
func Cluster(t testing.TB, adjust ...Adjust) (endpoints []string) {
	t.Helper()
	configs := clusterConfigs(t)
	for _, c := range configs {
		for _, a := range adjust {
			a(c)
		}
		endpoints = append(endpoints, c.AdvertiseClientUrls[0].String())
	}
	servers := make([]*embed.Etcd, len(configs))
	var starting errgroup.Group // none is ready before the others
	for i, c := range configs {
		starting.Go(func() (err error) {
			servers[i], err = embed.StartEtcd(c)
			return err
		})
	}
	err := starting.Wait()
	for _, s := range servers {
		if s != nil {
			t.Cleanup(func() { stop(s) })
		}
	}
	if err != nil {
		t.Fatalf("start etcd: %v", err)
	}
	for _, s := range servers {
		awaitReady(t, s)
	}
	return endpoints
}

func clusterConfigs(t testing.TB) (configs []*embed.Config) {
	t.Helper()
	var initial []string
	for i := range 3 {
		dir := directory(t)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }() // all ports are taken until the last is known
		peer := url.URL{Scheme: "http", Host: l.Addr().String()}
		client := url.URL{Scheme: "unix", Path: filepath.Join(dir, "s")}
		c := newConfig(dir)
		c.Name = fmt.Sprint("m", i)
		c.ListenPeerUrls, c.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
		c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
		configs = append(configs, c)
		initial = append(initial, c.Name+"="+peer.String())
	}
	for _, c := range configs {
		c.InitialCluster = strings.Join(initial, ",")
	}
	return configs
}
