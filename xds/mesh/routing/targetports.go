package routing

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// TargetPorts maps the ports of a gateway's service to the ports on which the gateway
// listens. A Gateway's server has the service's port; the service leads clients from
// there to the other. It is never modified.
type TargetPorts map[int]int

// Of returns the port on which the gateway listens for a server's port. It is the same
// port unless the service maps it.
func (t TargetPorts) Of(port int) int {
	if target, ok := t[port]; ok {
		return target
	}
	return port
}

// SameTarget returns the other ports that lead to the same target, in order. A port that no
// service has leads to itself.
func (t TargetPorts) SameTarget(port int) []int {
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

// String writes the ports in the format of ParseTargetPorts. Equal TargetPorts have equal
// text.
func (t TargetPorts) String() string {
	var out []string
	for _, port := range slices.Sorted(maps.Keys(t)) {
		out = append(out, strconv.Itoa(port)+"="+strconv.Itoa(t[port]))
	}
	return strings.Join(out, " ")
}

// ParseTargetPorts is the inverse of String. It skips pairs that are not numbers.
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
