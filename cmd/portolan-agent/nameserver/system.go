package nameserver

import (
	"bytes"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/miekg/dns"

	"github.com/portolan-mesh/portolan/xds/names/nds"
)

// Files are where a machine says which resolvers it has.
type Files struct {
	// ResolvConf is what programs read, and Uplinks what systemd-resolved writes of the resolvers
	// that it asks itself.
	ResolvConf, Uplinks string
}

// SystemFiles are those of Linux.
var SystemFiles = Files{ResolvConf: "/etc/resolv.conf", Uplinks: "/run/systemd/resolve/resolv.conf"}

// System is what a machine says of its resolvers (resolv.conf(5)).
type System struct {
	// Asked are the resolvers that programs ask: those of resolv.conf, and those behind the stub
	// of systemd-resolved, which programs ask through its own interface.
	Asked []netip.Addr
	// Resolvers are those to ask, in order. The stub of systemd-resolved is none of them.
	Resolvers []netip.AddrPort
	// Search is the first search domain, in lower case, empty for none.
	Search string
	// Timeout and Attempts are how often each is asked, and how long for.
	Timeout  time.Duration
	Attempts int
}

// Limits of what resolv.conf may say. A question that waits longer than its program does is lost.
const longestTimeout, mostAttempts = 2 * time.Second, 5

// stubs are the addresses of systemd-resolved on each machine.
var stubs = []netip.Addr{netip.MustParseAddr("127.0.0.53"), netip.MustParseAddr("127.0.0.54")}

// Read reads the files. A missing one says nothing.
func (f Files) Read() (System, error) {
	own, err := readResolvConf(f.ResolvConf)
	if err != nil {
		return System{}, err
	}
	out := System{Timeout: min(longestTimeout, time.Duration(own.Timeout)*time.Second), Attempts: min(own.Attempts, mostAttempts)}
	if len(own.Search) > 0 {
		out.Search = nds.KeyOf(own.Search[0])
	}
	add := func(servers []string) (stub bool) {
		for _, server := range servers {
			ip, err := netip.ParseAddr(server)
			if err != nil {
				continue
			}
			if !slices.Contains(out.Asked, ip.Unmap()) {
				out.Asked = append(out.Asked, ip.Unmap())
			}
			if slices.Contains(stubs, ip) {
				stub = true
			} else if at := netip.AddrPortFrom(ip.Unmap(), 53); !slices.Contains(out.Resolvers, at) {
				out.Resolvers = append(out.Resolvers, at)
			}
		}
		return stub
	}
	if !add(own.Servers) {
		return out, nil
	}
	uplinks, err := readResolvConf(f.Uplinks)
	if err != nil {
		return System{}, err
	}
	add(uplinks.Servers)
	return out, nil
}

func readResolvConf(file string) (*dns.ClientConfig, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return dns.ClientConfigFromReader(bytes.NewReader(text))
}

// ParseResolver reads a resolver's address, with port 53 if it names none.
func ParseResolver(text string) (netip.AddrPort, error) {
	if ip, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return netip.AddrPortFrom(ip.Unmap(), 53), nil
	}
	return netip.ParseAddrPort(text)
}
