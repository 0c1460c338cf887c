package etcdtest

import (
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
)

// handed counts the ports that FreePort has tried. They lie below the ports that the kernel
// assigns to clients and to listeners on port 0, and no two calls return the same one.
var handed atomic.Uint32

const firstPort, ports = 20000, 12000

// FreePort returns a port of 127.0.0.1 that nothing listens on.
func FreePort(t testing.TB) int {
	t.Helper()
	for range ports {
		// Test processes that run at the same time begin at different places.
		port := firstPort + (int(handed.Add(1))+os.Getpid()*97)%ports
		l, err := net.Listen("tcp", Local(port))
		if err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}

// Local returns a port of 127.0.0.1 as host:port.
func Local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
