package routing

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// TargetPorts are the ports on which a gateway listens, by the ports of its service: a server
// of a Gateway has the port of the service, and clients are led from there to the other. It
// is never modified.
type TargetPorts map[int]int

// Of is the port on which the gateway listens for a server with a port: the same, unless its
// service has another.
func (t TargetPorts) Of(port int) int {
	if target, ok := t[port]; ok {
		return target
	}
	return port
}

// Meeting are the other ports that lead where a port does, in order. A port that no service
// has leads to itself.
func (t TargetPorts) Meeting(port int) []int {
	var out []int
	target := t.Of(port)
	for other, to := range t {
		if to == target && other != port {
			out = append(out, other)
		}
	}
	if _, led := t[target]; !led && target != port {
		out = append(out, target)
	}
	slices.Sort(out)
	return out
}

// String writes the ports down so that ParseTargetPorts reads them. Equal ports are written
// alike.
func (t TargetPorts) String() string {
	var out []string
	for _, port := range slices.Sorted(maps.Keys(t)) {
		out = append(out, strconv.Itoa(port)+"="+strconv.Itoa(t[port]))
	}
	return strings.Join(out, " ")
}

// ParseTargetPorts reads what String has written.
func ParseTargetPorts(text string) TargetPorts {
	var out TargetPorts
	for pair := range strings.FieldsSeq(text) {
		from, to, _ := strings.Cut(pair, "=")
		port, err := strconv.Atoi(from)
		target, err2 := strconv.Atoi(to)
		if err != nil || err2 != nil {
			continue
		}
		if out == nil {
			out = TargetPorts{}
		}
		out[port] = target
	}
	return out
}
