package health_test

import (
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/storage/health"
)

func TestCheckOf(t *testing.T) {
	t.Parallel()
	const path, interval = health.CheckPathAnnotation, health.CheckIntervalAnnotation
	for name, c := range map[string]struct {
		annotations map[string]string
		want        health.Check
		at          string // the annotation that is bad
	}{
		"none":                  {nil, health.Check{}, ""},
		"others":                {map[string]string{health.ChecksAnnotation: "true"}, health.Check{}, ""},
		"a path":                {map[string]string{path: "/healthz?full=1"}, health.Check{Path: "/healthz?full=1", Interval: 10 * time.Second}, ""},
		"an interval":           {map[string]string{path: "/", interval: "250ms"}, health.Check{Path: "/", Interval: 250 * time.Millisecond}, ""},
		"an empty path":         {map[string]string{path: ""}, health.Check{}, path},
		"no path":               {map[string]string{path: "healthz"}, health.Check{}, path},
		"a space":               {map[string]string{path: "/a b"}, health.Check{}, path},
		"a fragment":            {map[string]string{path: "/a#b"}, health.Check{}, path},
		"a long path":           {map[string]string{path: "/" + strings.Repeat("a", 1024)}, health.Check{}, path},
		"not a duration":        {map[string]string{path: "/", interval: "5"}, health.Check{}, interval},
		"too often":             {map[string]string{path: "/", interval: "1ms"}, health.Check{}, interval},
		"too seldom":            {map[string]string{path: "/", interval: "61m"}, health.Check{}, interval},
		"an interval of nought": {map[string]string{interval: "5s"}, health.Check{}, interval},
	} {
		got, at, err := health.CheckOf(c.annotations)
		if got != c.want || at != c.at || (err != nil) != (c.at != "") {
			t.Errorf("%s: %v, %q, %v", name, got, at, err)
		}
	}
}

func TestChecked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations map[string]string
		want        bool
	}{
		"none":                    {nil, false},
		"said":                    {map[string]string{health.ChecksAnnotation: "true"}, true},
		"odd":                     {map[string]string{health.ChecksAnnotation: "maybe"}, false},
		"a probe":                 {map[string]string{health.ProbeAnnotation: "{tcpSocket: {port: 1}}"}, true},
		"a probe that only tells": {map[string]string{health.ProbeAnnotation: "{tcpSocket: {port: 1}}", health.ChecksAnnotation: "false"}, false},
	} {
		if got := health.Checked(c.annotations); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
