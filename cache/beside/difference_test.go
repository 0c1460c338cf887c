package beside

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/cache/cachetest"
	"github.com/portolan-mesh/portolan/cache/statuses"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/etcd"
	"github.com/portolan-mesh/portolan/storage/status"
)

// peer is a server in a test of Compare.
type peer struct {
	id string
	*Sources
	facts *statuses.Reports // shared
}

// look has the peer compare and report, and returns the differences.
func (p *peer) look() []Difference {
	report := p.Sources.Report(p.id)
	out := p.compare(p.id, report, p.facts)
	p.facts.Sources = p.facts.Sources.Set(p.id, &status.Sources{Replica: p.id, States: report.States})
	for key, content := range report.Contents {
		p.facts.Contents = p.facts.Contents.Set(strings.TrimPrefix(key, etcd.ContentPrefix), content)
	}
	return out
}

// newPeer makes a server with directories, each with its objects.
func newPeer(facts *statuses.Reports, id string, dirs map[string][]*config.Config, problems map[string]string, names ...string) *peer {
	b := &Sources{}
	at := cachetest.DirectoryOf(1)
	content := at.Content()
	var states []status.SourceState
	for _, name := range names {
		states = append(states, status.SourceState{Name: name, Complete: true, Problem: problems[name]})
		for _, object := range dirs[name] {
			named := *object
			named.Source = name
			content.Configs = content.Configs.Set(object.Key().Path(), &named)
		}
	}
	at = at.Next(1, content)
	if len(names) > 0 {
		b.States, b.Newest = func() []status.SourceState { return states }, func() *cache.Snapshot { return at }
	}
	b.Follow(at)
	return &peer{id, b, facts}
}

func TestWhatDiffersIsNamed(t *testing.T) {
	t.Parallel()
	type dirs = map[string][]*config.Config
	a, b, changed := cachetest.InFile("a", "f1"), cachetest.InFile("b", "f1"), cachetest.InFile("a", "f2")
	var many []*config.Config
	for i := range 20 {
		many = append(many, cachetest.InFile(fmt.Sprintf("m%02d", i), "f1"))
	}
	for name, c := range map[string]struct {
		one, two dirs
		names    [2][]string
		problem  string // of /etc on server two
		want     [2][]string
	}{
		"the same":             {dirs{"/etc": {a, b}}, dirs{"/etc": {a, b}}, [2][]string{{"/etc"}, {"/etc"}}, "", [2][]string{}},
		"the same, other path": {dirs{"/etc": {a, b}}, dirs{"/srv": {a, b}}, [2][]string{{"/etc"}, {"/srv"}}, "", [2][]string{}},
		"none":                 {nil, nil, [2][]string{}, "", [2][]string{}},
		"another content": {dirs{"/etc": {a}}, dirs{"/etc": {changed}}, [2][]string{{"/etc"}, {"/etc"}}, "", [2][]string{
			{"/etc: the server two:2 has other objects, different there: serviceentry/shop/a"},
			{"/etc: the server one:1 has other objects, different there: serviceentry/shop/a"},
		}},
		"one here, one there": {dirs{"/etc": {a}}, dirs{"/etc": {b}}, [2][]string{{"/etc"}, {"/etc"}}, "", [2][]string{
			{"/etc: the server two:2 has other objects, only here: serviceentry/shop/a; only there: serviceentry/shop/b"},
			{"/etc: the server one:1 has other objects, only here: serviceentry/shop/b; only there: serviceentry/shop/a"},
		}},
		"many": {dirs{"/etc": many}, dirs{"/etc": nil}, [2][]string{{"/etc"}, {"/etc"}}, "", [2][]string{
			{"/etc: the server two:2 has other objects, only here: serviceentry/shop/m00, serviceentry/shop/m01, serviceentry/shop/m02 and 17 more"},
			{"/etc: the server one:1 has other objects, only there: serviceentry/shop/m00, serviceentry/shop/m01, serviceentry/shop/m02 and 17 more"},
		}},
		"no such source": {dirs{"/etc": {a}}, nil, [2][]string{{"/etc"}, nil}, "", [2][]string{
			{"/etc: the server two:2 has no such source"},
			{"/etc: this server has no such source, and the server one:1 has it"},
		}},
		"cannot be read": {dirs{"/etc": {a}}, dirs{"/etc": {a}}, [2][]string{{"/etc"}, {"/etc"}}, "no such directory", [2][]string{
			{"/etc: the server two:2 cannot read it: no such directory"}, nil,
		}},
		"cannot be read from the start": {dirs{"/etc": {a}}, dirs{"/etc": nil}, [2][]string{{"/etc"}, {"/etc"}}, "no such directory", [2][]string{
			{"/etc: the server two:2 has other objects, only here: serviceentry/shop/a; it cannot read them: no such directory"},
			{"/etc: the server one:1 has other objects, only there: serviceentry/shop/a"},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			facts := &statuses.Reports{}
			one := newPeer(facts, "one:1/x", c.one, nil, c.names[0]...)
			two := newPeer(facts, "two:2/y", c.two, map[string]string{"/etc": c.problem}, c.names[1]...)
			for range 3 { // until each has read the other's report
				one.look()
				two.look()
			}
			for i, server := range []*peer{one, two} {
				var got []string
				for _, d := range server.look() {
					got = append(got, d.Source+": "+d.Message)
				}
				if d := cmp.Diff(c.want[i], got); d != "" {
					t.Errorf("server %d (-want +got):\n%s", i, d)
				}
			}
		})
	}
}

// TestADifferenceIsToldOnceItLasts: it is logged once, and again when it is over.
func TestADifferenceIsToldOnceItLasts(t *testing.T) {
	t.Parallel()
	var lines bytes.Buffer
	log, b, at := slog.New(slog.NewTextHandler(&lines, nil)), &Sources{}, time.Now()
	differs := []Difference{{Source: "/etc", Server: "two:2/y", Message: "the server two:2 has other objects, only here: a"}}
	check := func(after time.Duration, now []Difference, want bool) {
		t.Helper()
		b.setLasting(now, at.Add(after), log)
		if got := b.Degraded() != nil; got != want || len(b.Differences()) > 0 != want {
			t.Errorf("after %s it is told: %v, want %v", after, b.Degraded(), want)
		}
	}
	check(0, differs, false)
	check(differLimit-time.Second, nil, false) // a change on its way
	check(differLimit, differs, false)
	check(2*differLimit, differs, true)
	check(3*differLimit, differs, true)
	if err := b.Degraded(); err == nil || !strings.Contains(err.Error(), "source /etc: the server two:2 has") {
		t.Errorf("it is told as %v", err)
	}
	check(4*differLimit, nil, false)
	if n := strings.Count(lines.String(), "level=WARN"); n != 1 || strings.Count(lines.String(), "level=INFO") != 1 {
		t.Errorf("it is logged as %s", &lines)
	}
}
