package nameserver

import (
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	discoveryv3 "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/proto"

	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/xds/names/nds"
)

// Table has the hosts of the mesh, as one proxy sees them. Any number of goroutines may look while
// one updates. To update costs in proportion to the change.
type Table struct {
	// Namespace and Domain are the proxy's: short names are completed by them.
	Namespace, Domain string
	// Logger is told of hosts that cannot be read; nil for none.
	Logger *slog.Logger

	now atomic.Pointer[hosts] // nil until the first update
}

// hosts is a table at one time. It is never modified.
type hosts struct {
	byName         pmap.Map[*host] // by the name in lower case
	since, changed time.Time
}

// host is one host of the mesh with its addresses by family.
type host struct {
	name   string // in lower case; it may begin with a wildcard
	v4, v6 []netip.Addr
}

// resourcePrefix is before the host in the name of each resource.
const resourcePrefix = nds.TableName + "/"

// Update takes resources of nds.HostType that came or changed, and the names of those that went. A
// resource that cannot be read changes nothing.
func (t *Table) Update(set []*discoveryv3.Resource, removed []string) {
	next := hosts{since: time.Now()}
	if was := t.now.Load(); was != nil {
		next = *was
	}
	next.changed = time.Now()
	for _, name := range removed {
		next.byName = next.byName.Delete(nds.KeyOf(strings.TrimPrefix(name, resourcePrefix)))
	}
	for _, r := range set {
		one := &nds.Host{}
		if err := proto.Unmarshal(r.GetResource().GetValue(), one); err != nil {
			t.warn(r.GetName(), err)
			continue
		}
		for name, info := range one.GetTable() {
			h := t.newHost(nds.KeyOf(name), info.GetIps())
			next.byName = next.byName.Set(h.name, h)
		}
	}
	t.now.Store(&next)
}

func (t *Table) newHost(name string, ips []string) *host {
	h := &host{name: name}
	for _, text := range ips {
		ip, err := netip.ParseAddr(text)
		switch ip = ip.Unmap(); {
		case err != nil:
			t.warn(name, err)
		case ip.Is4():
			h.v4 = append(h.v4, ip)
		default:
			h.v6 = append(h.v6, ip)
		}
	}
	return h
}

func (t *Table) warn(name string, err error) {
	if t.Logger != nil {
		t.Logger.Warn("a host of the mesh cannot be read: use an agent as new as the servers", "host", name, "err", err)
	}
}

// match is what a name stands for.
type match struct {
	host *host
	// name is the full name: the host, or a name below its wildcard. It is in lower case.
	name string
	// searched says that the name was asked with the search domain behind it.
	searched bool
}

// find returns what a name in lower case stands for, nil if it is not of the mesh or if the table
// was never told anything. The search domain is the machine's first one, empty for none: the stub
// resolvers of programs add it. A host goes before a short name, that before the same without the
// search domain, and a wildcard comes last, the longest first.
func (t *Table) find(name, search string) *match {
	now := t.now.Load()
	if now == nil {
		return nil
	}
	bare, searched := "", false
	if search != "" {
		bare, searched = strings.CutSuffix(name, "."+search)
	}
	if m := t.whole(now, name); m != nil {
		return m
	}
	if searched {
		if m := t.whole(now, bare); m != nil {
			m.searched = true
			return m
		}
	}
	if h := now.wildcard(name); h != nil {
		return &match{host: h, name: name}
	}
	if searched {
		if h := now.wildcard(bare); h != nil {
			return &match{host: h, name: bare, searched: true}
		}
	}
	return nil
}

// whole finds a host by its name or a short name.
func (t *Table) whole(now *hosts, name string) *match {
	for _, full := range []string{name, nds.Complete(name, t.Namespace, t.Domain)} {
		if h, ok := now.byName.Get(full); ok {
			return &match{host: h, name: full}
		}
	}
	return nil
}

// wildcard returns the host with the longest wildcard above a name.
func (h *hosts) wildcard(name string) *host {
	for pattern := range nds.Wildcards(name) {
		if one, ok := h.byName.Get(pattern); ok {
			return one
		}
	}
	return nil
}
