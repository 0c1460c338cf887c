package doctor

import (
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/discovery/node"
)

// TestClock: a small difference is none, a larger one is noticed, and what certificates are not
// dated back by is a fault.
func TestClock(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[time.Duration]string{
		20 * time.Second:  "ok as that of s",
		-20 * time.Second: "ok as that of s",
		time.Minute:       "warning this machine is 1m0s ahead of s",
		-time.Minute:      "warning this machine is 1m0s behind s",
		3 * time.Hour:     "fault this machine is 3h0m0s ahead of s",
		-3 * time.Hour:    "fault this machine is 3h0m0s behind s",
	} {
		got := clock("s", ahead)
		if text := string(got.Level) + " " + got.Text; text != want || (got.Do == "") != (got.Level == OK) {
			t.Errorf("%s: %+v, want %q", ahead, got, want)
		}
	}
}

// TestRegistered: what the servers have said of the registration is a finding of its weight, with what
// to do.
func TestRegistered(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		group string
		said  *node.Standing
		want  Level // empty for no finding
	}{
		"no group":     {want: ""},
		"nothing said": {"web", nil, Warn},
		"registered":   {"web", &node.Standing{State: node.Registered, Entry: "e"}, OK},
		"partly":       {"web", &node.Standing{State: node.Registered, Entry: "e", Reason: "without labels"}, Warn},
		"drained":      {"web", &node.Standing{State: node.Registered, Entry: "e", Drained: "a disk"}, Warn},
		"waiting":      {"web", &node.Standing{State: node.Waiting, Entry: "e", Reason: "the group"}, Warn},
		"written":      {"", &node.Standing{State: node.Written, Entry: "e", Reason: "beside f"}, OK},
		"and drained":  {"", &node.Standing{State: node.Written, Entry: "e", Drained: "a disk"}, Warn},
		"refused":      {"web", &node.Standing{State: node.Refused, Entry: "e", Reason: "it is removed"}, Fail},
	} {
		o := Options{Running: true, Registration: c.said}
		o.Config.Proxy.Group = c.group
		found := registered(t.Context(), o)
		if len(found) == 0 && c.want == "" {
			continue
		}
		if len(found) != 1 || found[0].Level != c.want || (found[0].Do == "") != (c.want == OK) {
			t.Errorf("%s: %+v, want %s", name, found, c.want)
		}
		if o.Running = false; len(registered(t.Context(), o)) != 0 {
			t.Errorf("%s: something is found while no agent runs", name)
		}
	}
}

// TestTraffic: each reason why the machine takes no traffic, though nobody has drained it, is a fault.
func TestTraffic(t *testing.T) {
	t.Parallel()
	if found := traffic(t.Context(), Options{Running: true}); len(found) != 0 {
		t.Errorf("a machine that is ready: %+v", found)
	}
	found := traffic(t.Context(), Options{Running: true, Faults: []string{"the workload is unhealthy:\n 503", "the Envoy has no configuration yet"}})
	if len(found) != 2 || found[0].Level != Fail || found[0].Text != "the workload is unhealthy: 503" || found[0].Do == "" {
		t.Errorf("two faults: %+v", found)
	}
}
