package main

import (
	"context"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/address"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/storage/retry"
)

// locate finds the addresses of the machine, and waits while it has none.
func (a *agent) locate(ctx context.Context) error {
	for wait := retry.New(100*time.Millisecond, 5*time.Second); ; {
		found, err := address.Of(a.config.Proxy.IPs, a.config.XDS[0])
		if err == nil {
			c := a.config
			c.Addresses = found
			a.locatedAt(&c)
			return nil
		}
		a.logger.Warn("the machine has no address yet: waiting for its network", "err", err)
		if err := wait.Wait(ctx); err != nil {
			return err
		}
	}
}

// locatedAt takes the machine's addresses, and tells what they leave out.
func (a *agent) locatedAt(c *config.Config) {
	a.located.Store(c)
	if passing := c.Uncaptured(); len(passing) > 0 {
		a.logger.Warn("the machine has addresses of a family that the mesh does not know: connections of that family pass by the sidecar: name the interface in proxy.ips of the file, or say there which family is to be captured (capture: {ipv4: true})", "addresses", passing)
	}
}

// moved takes other addresses: the machine leaves the mesh at the old ones, and its Envoy is replaced
// by one that is at the new ones.
func (a *agent) moved(to []string) {
	c := *a.located.Load()
	a.logger.Warn("the machine has other addresses", "before", c.Addresses, "now", to)
	c.Addresses = to
	a.locatedAt(&c)
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
