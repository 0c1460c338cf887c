package route

import (
	"fmt"
	"iter"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/portolan-mesh/portolan/xds/envoy"
	"github.com/portolan-mesh/portolan/xds/resource"
)

// HostName names a virtual host as a resource: its route configuration, and its
// name in there.
func HostName(config, host string, port int) string {
	return config + "/" + envoy.HostPort(host, uint32(port))
}

// SplitHostName is the inverse of HostName; false where the name is none that it
// makes.
func SplitHostName(name string) (config, hostPort string, ok bool) {
	return strings.Cut(name, "/")
}

// Compose implements generate.Composer. Without hosts, a route configuration is
// its frame, of which it says no more than that. With hosts, that of a proxy that
// takes them by delta names where they come from, and any other has the bytes of
// all of them, before what takes the rest. A gateway's black hole makes way for
// them.
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

// frame is an encoded route configuration without hosts, cut up into its fields in
// their order.
type frame struct {
	name    []byte // before the virtual hosts
	rest    []byte // the one virtual host that it has
	hole    bool   // and whether that is a gateway's black hole
	options []byte // between the virtual hosts and
	vhds    []byte // where more come from, empty for a proxy that takes all in one
	limits  []byte // after that
}

// The fields of the messages that are put together.
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
			f.rest, f.hole = field, isBlackHole(string(name))
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

// cutName takes the name off an encoded virtual host, where it stands first.
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

// empty is the frame as that of a route configuration without hosts.
func (f frame) empty() []byte { return slices.Concat(f.name, f.rest, f.options, f.limits) }

// byDelta is the frame where the hosts come by themselves.
func (f frame) byDelta() []byte { return slices.Concat(f.name, f.taker(), f.options, f.vhds, f.limits) }

// taker is the host for what no other takes; none beside the hosts of a gateway.
func (f frame) taker() []byte {
	if f.hole {
		return nil
	}
	return f.rest
}

// whole is the frame with the hosts in it, under their short names.
func (f frame) whole(hosts []*resource.Resource) ([]byte, error) {
	size := len(f.name) + len(f.rest) + len(f.options) + len(f.limits)
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
	return append(append(append(out, f.taker()...), f.options...), f.limits...), nil
}
