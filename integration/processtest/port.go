package processtest

import (
	"testing"

	"github.com/portolan-mesh/portolan/storage/etcd/etcdtest"
)

// FreePort returns a port of 127.0.0.1 that nothing listens on.
func FreePort(t testing.TB) int {
	t.Helper()
	return etcdtest.FreePort(t)
}

// Local returns host:port for a port of 127.0.0.1.
func Local(port int) string { return etcdtest.Local(port) }
