package health_test

import (
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/storage/health"
)

func TestWithdrawn(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations map[string]string
		want        string // empty for not withdrawn
	}{
		"none":    {nil, ""},
		"others":  {map[string]string{health.ChecksAnnotation: "true"}, ""},
		"drained": {map[string]string{health.DrainedAnnotation: "a disk"}, "it is drained: a disk"},
		"removed": {map[string]string{health.RemovedAnnotation: "stolen"}, "it is removed: stolen"},
		"both":    {map[string]string{health.RemovedAnnotation: "stolen", health.DrainedAnnotation: "a disk"}, "it is removed: stolen"},
	} {
		if got, ok := health.Withdrawn(c.annotations); got != c.want || ok != (c.want != "") {
			t.Errorf("%s: %q, %v", name, got, ok)
		}
	}
}

func TestCheckReason(t *testing.T) {
	t.Parallel()
	for why, good := range map[string]bool{
		"a disk": true, "größer": true, strings.Repeat("a", 256): true,
		"": false, "  ": false, "two\nlines": false, "\xff": false, strings.Repeat("a", 257): false,
	} {
		if err := health.CheckReason(why); (err == nil) != good {
			t.Errorf("%q: %v", why, err)
		}
	}
}
