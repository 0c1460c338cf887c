package xds

import (
	"maps"
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
// secrets exist. A secret that was given and taken back is none of them: a draining listener
// of the proxy goes on requesting it.
func (c *Connection) noteRefusedSecrets(t *typeState) {
	given := c.desired.Resources(t.url)
	requested, _ := t.subscription.Subscribed()
	refused, more := map[string]struct{}{}, 0
	for name := range requested {
		_, before := t.refused[name]
		takenBack := t.judged.Has(name) && !before
		if given.Value(name) != nil || takenBack || t.subscription.MayHoldRejected(name) {
			continue
		}
		if refused[name] = struct{}{}; !before {
			more++
		}
	}
	t.refused, t.judged = refused, t.names
	if more == 0 {
		return
	}
	c.server.metrics.refused.Add(float64(more))
	first := slices.Sorted(maps.Keys(refused))
	first = first[:min(len(first), namedInLog)]
	for i, name := range first {
		first[i] = progress.Shorten(name, maxLogged)
	}
	c.server.logger.Warn("proxy requests secrets that it is not given", "proxy", c.note.Node(), "namespace", c.proxy.Namespace,
		"secrets", len(refused), "first", strings.Join(first, " "))
}
