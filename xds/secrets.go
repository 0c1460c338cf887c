package xds

import (
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/portolan-mesh/portolan/xds/progress"
)

// isLocal says whether a client is on the server's own machine: it connects from a loopback
// address, or by something other than TCP, such as a Unix socket.
func isLocal(remote net.Addr) bool {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return remote != nil
	}
	ip, ok := netip.AddrFromSlice(tcp.IP)
	return ok && ip.Unmap().IsLoopback()
}

// namedInLog bounds how many names of refused secrets are logged at one time.
const namedInLog = 3

// noteRefusedSecrets counts and logs the secrets that the proxy requests but is not given.
// The server answers as for any unknown name, so that the proxy does not learn which
// secrets exist.
func (c *Connection) noteRefusedSecrets(t *typeState) {
	given := c.desired.Resources(t.url)
	requested, _ := t.subscription.Subscribed()
	var refused []string
	for name := range requested {
		if given.Value(name) == nil && !t.subscription.MayHoldRejected(name) { // a secret that the proxy has was taken back, not refused
			refused = append(refused, progress.Shorten(name, maxLogged))
		}
	}
	if more := len(refused) - t.refused; more > 0 {
		c.server.metrics.refused.Add(float64(more))
		slices.Sort(refused)
		c.server.logger.Warn("proxy requests secrets that it is not given", "proxy", c.note.Node(), "namespace", c.proxy.Namespace,
			"secrets", len(refused), "first", strings.Join(refused[:min(len(refused), namedInLog)], " "))
	}
	t.refused = len(refused)
}
