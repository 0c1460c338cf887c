package objects

import (
	"fmt"
	"maps"
	"strconv"
	"strings"

	networking "istio.io/api/networking/v1alpha3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/storage/status"
)

// selector formats a selector of workloads; an empty one is "all".
func selector(labels map[string]string, wide bool) string {
	if len(labels) == 0 {
		return "all"
	}
	return cli.Pairs(labels, wide)
}

// port formats a port, as in "80/HTTP".
func port(n uint32, protocol string) string { return fmt.Sprintf("%d/%s", n, protocol) }

func number(n uint32) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(uint64(n), 10)
}

// routeCounts formats the counts that are not 0, as in "http=2,tcp=1".
func routeCounts(s *networking.VirtualService) string {
	counts := map[string]int{"http": len(s.GetHttp()), "tls": len(s.GetTls()), "tcp": len(s.GetTcp())}
	maps.DeleteFunc(counts, func(_ string, n int) bool { return n == 0 })
	return cli.Pairs(counts, true)
}

// condition is one condition in an object's status.
type condition map[string]any

// text returns the text of a field, on one line.
func (c condition) text(field string) string {
	s, _ := c[field].(string)
	return strings.Join(strings.Fields(s), " ")
}

func conditionsOf(object *unstructured.Unstructured) (out []condition) {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, one := range conditions {
		c, _ := one.(map[string]any)
		out = append(out, c)
	}
	return out
}

// programmedOf returns the reason of the condition Programmed, which implies its status, and
// how many of the proxies concerned have the object. It is empty if there is no such
// condition.
func programmedOf(object *unstructured.Unstructured) string {
	for _, c := range conditionsOf(object) {
		if c.text("type") != status.Programmed {
			continue
		}
		var have, concerned int
		if n, _ := fmt.Sscanf(c.text("message"), "%d of %d proxies", &have, &concerned); n == 2 {
			return fmt.Sprintf("%s %d/%d", c.text("reason"), have, concerned)
		}
		return c.text("reason")
	}
	return ""
}

// issuesOf returns the reasons of the conditions that report a problem with an object: the
// code of the worst finding of each sort, and why it is refused.
func issuesOf(object *unstructured.Unstructured) string {
	var out []string
	for _, c := range conditionsOf(object) {
		switch is := c.text("status"); c.text("type") {
		case status.ResolvedRefs:
			if is == status.False {
				out = append(out, c.text("reason"))
			}
		case status.Rejected, status.Conflicted, status.PartlyServed:
			if is == status.True {
				out = append(out, c.text("reason"))
			}
		}
	}
	return cli.FormatList(out, true)
}
