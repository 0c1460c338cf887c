package processtest

import (
	"testing"

	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// FreePort is a port of 127.0.0.1 that nothing listens on.
func FreePort(t testing.TB) int {
	t.Helper()
	return etcdtest.FreePort(t)
}

// Local is a port of 127.0.0.1 as host:port.
func Local(port int) string { return etcdtest.Local(port) }
