package route

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/portolan-mesh/portolan/xds/names"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// HostName is the resource name of a virtual host: its route configuration and its name
// there.
func HostName(config, host string, port int) string {
	return config + "/" + names.HostPort(host, uint32(port))
}

// SplitHostName is the inverse of HostName; false for other names. The name of a route
// configuration may have slashes, as that of a socket does.
func SplitHostName(name string) (config, hostPort string, ok bool) {
	at := strings.LastIndexByte(name, '/')
	if at < 0 {
		return name, "", false
	}
	return name[:at], name[at+1:], true
}

// Compose implements generate.Composer. Without hosts, the result is the frame. With
// hosts, a proxy that takes them by delta gets the frame with their source (VHDS). Other
// proxies get the bytes of all hosts, before the host for all other requests. Hosts
// replace a gateway's black hole.
func (Generator) Compose(own *resource.Resource, parts iter.Seq[*resource.Resource]) (*resource.Resource, error) {
	f, err := cutFrame(own.Body.GetValue())
	if err != nil {
		return nil, fmt.Errorf("route configuration %s: %w", own.Name, err)
	}
	if f.vhds != nil {
		for range parts {
			return own.Apart(f.byDelta()), nil
		}
		return own.Apart(f.empty()), nil
	}
	hosts := slices.Collect(parts)
	if len(hosts) == 0 {
		return own, nil
	}
	body, err := f.whole(hosts)
	if err != nil {
		return nil, err
	}
	return own.With(body, hosts), nil
}

// frame is an encoded route configuration without hosts, split into its fields in their
// order.
type frame struct {
	name    []byte // fields before the virtual hosts
	own     []byte // the virtual hosts of the frame itself, which come after all others
	hole    []byte // a gateway's black hole, which other hosts replace
	options []byte // fields between the virtual hosts and vhds
	vhds    []byte // the source of virtual hosts (VHDS), empty for a proxy that does not take them by delta
	limits  []byte // fields after vhds
}

// The field numbers of the composed messages.
const (
	fieldVirtualHosts    protowire.Number = 2 // of RouteConfiguration
	fieldVHDS            protowire.Number = 9
	fieldVirtualHostName protowire.Number = 1 // of VirtualHost
)

func cutFrame(b []byte) (frame, error) {
	var f frame
	for len(b) > 0 {
		number, kind, head := protowire.ConsumeTag(b)
		if head < 0 {
			return frame{}, protowire.ParseError(head)
		}
		n := protowire.ConsumeFieldValue(number, kind, b[head:])
		if n < 0 {
			return frame{}, protowire.ParseError(n)
		}
		field := b[:head+n]
		switch {
		case number == fieldVirtualHosts:
			host, _ := protowire.ConsumeBytes(field[head:])
			name, _, err := cutName(host)
			if err != nil {
				return frame{}, err
			}
			if IsBlackHole(string(name)) {
				f.hole = field
			} else {
				f.own = append(f.own, field...)
			}
		case number == fieldVHDS:
			f.vhds = field
		case number < fieldVirtualHosts:
			f.name = append(f.name, field...)
		case number < fieldVHDS:
			f.options = append(f.options, field...)
		default:
			f.limits = append(f.limits, field...)
		}
		b = b[head+n:]
	}
	return f, nil
}

// cutName separates the name, the first field, from the rest of an encoded virtual host.
func cutName(host []byte) (name, others []byte, err error) {
	number, kind, head := protowire.ConsumeTag(host)
	if head < 0 || number != fieldVirtualHostName || kind != protowire.BytesType {
		return nil, nil, fmt.Errorf("an encoded virtual host does not begin with its name")
	}
	name, n := protowire.ConsumeBytes(host[head:])
	if n < 0 {
		return nil, nil, protowire.ParseError(n)
	}
	return name, host[head+n:], nil
}

// empty returns the frame as a route configuration without hosts.
func (f frame) empty() []byte { return slices.Concat(f.name, f.own, f.hole, f.options, f.limits) }

// byDelta returns the frame for a proxy that takes the hosts by delta.
func (f frame) byDelta() []byte { return slices.Concat(f.name, f.own, f.options, f.vhds, f.limits) }

// whole returns the frame with the hosts, under their names without the route
// configuration's.
func (f frame) whole(hosts []*resource.Resource) ([]byte, error) {
	size := len(f.name) + len(f.own) + len(f.options) + len(f.limits)
	for _, h := range hosts {
		size += len(h.Body.GetValue()) + protowire.SizeTag(fieldVirtualHosts) + protowire.SizeVarint(uint64(len(h.Body.GetValue())))
	}
	out := append(make([]byte, 0, size), f.name...)
	for _, h := range hosts {
		_, others, err := cutName(h.Body.GetValue())
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.Name, err)
		}
		_, short, _ := SplitHostName(h.Name)
		named := protowire.SizeTag(fieldVirtualHostName) + protowire.SizeBytes(len(short))
		out = protowire.AppendTag(out, fieldVirtualHosts, protowire.BytesType)
		out = protowire.AppendVarint(out, uint64(named+len(others)))
		out = protowire.AppendTag(out, fieldVirtualHostName, protowire.BytesType)
		out = protowire.AppendString(out, short)
		out = append(out, others...)
	}
	return append(append(append(out, f.own...), f.options...), f.limits...), nil
}
