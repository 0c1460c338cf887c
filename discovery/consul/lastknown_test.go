package consul_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/discovery"
	"github.com/portolan-mesh/portolan/discovery/consul"
	"github.com/portolan-mesh/portolan/discovery/lastknown"
)

// memory returns the saved content that a test gives it.
type memory struct {
	recalled lastknown.Recalled
	failures atomic.Int32 // how many recalls fail first
}

func (m *memory) Recall(context.Context, string) (lastknown.Recalled, error) {
	if m.failures.Add(-1) >= 0 {
		return lastknown.Recalled{}, errors.New("the store is away")
	}
	return m.recalled, nil
}

// remembered waits until the registry's content may be saved, and returns it as saved.
func remembered(f *fixture) *memory {
	f.t.Helper()
	var known lastknown.Known
	await(f.t, "it can be saved", func() (ok bool) {
		known, ok = f.Sources()[0].Known()
		return ok
	})
	m := &memory{recalled: lastknown.Recalled{Confirmed: time.Unix(1e9, 0), State: known.State, Items: map[string][]byte{}}}
	for key, item := range known.Items.All() {
		value, err := item.Value()
		if err != nil {
			f.t.Fatal(err)
		}
		m.recalled.Items[key] = value
	}
	return m
}

// rows returns all rows in a short text form.
func rows(f *fixture) map[string][]string {
	out := map[string][]string{}
	for name, row := range f.xds.Rows() {
		out[name] = described(row)
	}
	return out
}

// recalling sets Memory, and a short Patience.
func recalling(m *memory) func(o *consul.Options) {
	return func(o *consul.Options) { o.Memory, o.Patience = m, 100*time.Millisecond }
}

// A server that starts while Consul is away serves the last known content, and says so. When
// Consul comes back, it follows Consul from there.
func TestAwayAtTheStart(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(a *agent, on bool){
		"no leader": func(a *agent, on bool) { a.leader = !on },
		"it hangs":  func(a *agent, on bool) { a.hangs = on },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := six(t)
			a.put(entry("n2", "a", "a-2", "10.0.1.1", 81, tags("http", "version=v2"), meta("zone", "z"), check("c", "critical")))
			first := follow(t, a).synced()
			m := remembered(first)
			m.failures.Store(2)
			a.change(func() { harm(a, true) })
			f := follow(t, a, recalling(m)).synced()
			if diff := cmp.Diff(rows(first), rows(f)); diff != "" {
				t.Errorf("(-before +after)\n%s", diff)
			}
			s := f.Status().Datacenters[0]
			if s.State != consul.StateDegraded || s.Whole || s.LastKnown == nil || !s.LastKnown.Equal(m.recalled.Confirmed) {
				t.Errorf("%+v", s)
			}
			if s := f.SourceStatuses()[0]; s.State != discovery.SourceLastKnown || !s.AsOf.Equal(m.recalled.Confirmed) || s.Services == 0 || s.Problem == "" {
				t.Errorf("%+v", s)
			}
			await(t, "it says what is served", func() bool {
				err := f.Degraded()
				return f.Ready() == nil && err != nil && strings.Contains(err.Error(), "at 2001-09-09T01:46:40Z")
			})
			if _, ok := f.Sources()[0].Known(); ok {
				t.Error("what Consul has not confirmed would be saved as if it had")
			}
			a.change(func() {
				a.entries["n1/b-2"] = entry("n1", "b", "b-2", "10.0.0.9", 80)
				delete(a.entries, "n1/c-1")
				harm(a, false)
			})
			f.row("b", "tcp-80=10.0.0.2:80", "tcp-80=10.0.0.9:80")
			await(t, "what went meanwhile goes", func() bool { return !f.has("c") })
			await(t, "it is synced", func() bool { return f.Status().Datacenters[0].State == consul.StateSynced })
			if s := f.SourceStatuses()[0]; s.State != discovery.SourceLive || !s.AsOf.IsZero() || s.Problem != "" {
				t.Errorf("%+v", s)
			}
			if calls := f.xds.Take(); slices.Contains(calls, "services consul/a.service.consul 0") {
				t.Errorf("a was withdrawn meanwhile: %v", calls)
			}
		})
	}
}

// What Consul told before it went away can be saved after that, as of then.
func TestKnownOnceAway(t *testing.T) {
	t.Parallel()
	a := six(t)
	f := follow(t, a).synced()
	until := func() (until time.Time, ok bool) {
		known, ok := f.Sources()[0].Known()
		return known.Until, ok
	}
	await(t, "it is followed", func() bool { at, ok := until(); return ok && at.IsZero() })
	a.put(entry("n1", "b", "b-1", "10.0.0.22", 80))
	f.row("b", "tcp-80=10.0.0.22:80")
	began := time.Now()
	a.change(func() { a.leader = false })
	await(t, "it is away", func() bool { return f.Degraded() != nil })
	at, ok := until()
	if since := at.Sub(began); !ok || since < 0 || since > time.Minute {
		t.Errorf("it is known until %s after it went: %v", since, ok)
	}
	if m := remembered(f); !strings.Contains(string(m.recalled.Items["b/n1/b-1"]), "10.0.0.22") {
		t.Errorf("known is %s", m.recalled.Items)
	}
	a.change(func() { a.leader = true })
	await(t, "it is followed again", func() bool { at, ok := until(); return ok && at.IsZero() })
}

// A server that starts on a Consul that has lost its data serves the last known content for a
// time. Then it believes Consul.
func TestEmptyAtTheStart(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]func(*agent){
		"its servers are others":     func(a *agent) { a.server = "second" },
		"its index went back":        func(a *agent) { a.index = 1 },
		"nothing but that it has no": func(*agent) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := six(t)
			m := remembered(follow(t, a).synced())
			a.change(func() {
				clear(a.entries)
				harm(a)
			})
			f := follow(t, a, recalling(m), func(o *consul.Options) { o.ResetHold = 3 * time.Second }).synced()
			await(t, "it says so", func() bool {
				err := f.Degraded()
				return err != nil && strings.Contains(err.Error(), "lost its data; 6 instances")
			})
			if _, ok := f.Sources()[0].Known(); ok {
				t.Error("what Consul has lost would be saved as if it had not")
			}
			a.put(entry("n1", "b", "b-1", "10.0.0.22", 80))
			f.row("b", "tcp-80=10.0.0.22:80")
			if !f.has("a") {
				t.Error("a is gone before its time")
			}
			await(t, "what is not back in time goes", func() bool { return !f.has("a") })
			await(t, "it is synced", func() bool { return f.Status().Datacenters[0].State == consul.StateSynced })
			if !f.has("b") {
				t.Error("b is gone")
			}
		})
	}
}

// A server that starts while Consul answers believes Consul at once, whatever was last known.
func TestThereAtTheStart(t *testing.T) {
	t.Parallel()
	a := six(t)
	m := remembered(follow(t, a).synced())
	a.remove("n1/c-1")
	f := follow(t, a, recalling(m), func(o *consul.Options) { o.Patience = time.Hour }).synced()
	await(t, "what went goes", func() bool { return !f.has("c") })
	if s := f.Status().Datacenters[0]; s.State != consul.StateSynced || s.Kept > 0 {
		t.Errorf("%+v", s)
	}
}

// If Consul is away at the start and nothing was saved, the mesh waits only for a limited
// time.
func TestNothingIsKnown(t *testing.T) {
	t.Parallel()
	a := six(t)
	a.change(func() { a.leader = false })
	f := follow(t, a, recalling(&memory{}), func(o *consul.Options) { o.ResetHold = 500 * time.Millisecond })
	await(t, "it waits", func() bool { return f.Ready() != nil && f.Status().Datacenters[0].State == consul.StateSyncing })
	f.synced()
	if err := f.Degraded(); err == nil || !strings.Contains(err.Error(), "nothing is known of it") || len(f.xds.Rows()) > 0 {
		t.Errorf("%v, %v", err, f.xds.Rows())
	}
	a.change(func() { a.leader = true })
	f.row("b", "tcp-80=10.0.0.2:80")
}
