package main

import (
	"context"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/address"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// locate finds the addresses of the machine, and waits while it has none.
func (a *agent) locate(ctx context.Context) error {
	for wait := retry.New(100*time.Millisecond, 5*time.Second); ; {
		found, err := address.Of(a.config.Proxy.IPs, a.config.XDS[0])
		if err == nil {
			c := a.config
			c.Addresses = found
			a.located.Store(&c)
			return nil
		}
		a.logger.Warn("the machine has no address yet: waiting for its network", "err", err)
		if err := wait.Wait(ctx); err != nil {
			return err
		}
	}
}

// moved takes other addresses: the machine leaves the mesh at the old ones, and its Envoy is replaced
// by one that is at the new ones.
func (a *agent) moved(to []string) {
	c := *a.located.Load()
	a.logger.Warn("the machine has other addresses", "before", c.Addresses, "now", to)
	c.Addresses = to
	a.located.Store(&c)
	proxy, err := a.writeBootstraps()
	if err != nil {
		a.logger.Error("the bootstrap cannot be written: the mesh does not know the new addresses", "err", err)
		return
	}
	within, done := context.WithTimeout(context.Background(), leaveWithin)
	defer done()
	a.relay.Rename(within, proxy)
	a.captureAnew()
	if a.envoy != nil {
		a.envoy.Replace()
	}
}
