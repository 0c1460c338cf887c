package progress

import (
	"slices"

	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/status"
)

// missingOn returns the WasmPlugins that lack their module on a server.
func missingOn(id string, missing []status.MissingModule) (out []status.MissingModule) {
	for _, m := range missing {
		m.Server = id
		out = append(out, m)
	}
	return out
}

// OfPlugins returns how far the change of one revision has come that wrote WasmPlugins whose modules
// the servers fetch. A module has no revision, and comes later than its plugin: a proxy has taken the
// change once it has all that is published. A rejection counts that is of the revision, or names one of
// the plugins.
func (v *View) OfPlugins(revision int64, plugins []config.Key) Distribution {
	out := v.Of(revision, false)
	p, facts := v.Server.Progress(), v.facts() // newer than out
	now := v.distribution(p, facts, p.now(), true, func(r *status.Replica) (status.Count, bool) { return r.Now, true })
	used, usage, refusing := false, v.usage(facts), map[string]bool{}
	for _, key := range plugins {
		used = used || usage.has(status.ObjectID(key))
	}
	for _, t := range now.Problems {
		names := func(key config.Key) bool { return slices.Contains(t.Objects, key.Path()) }
		known := func(o status.Problem) bool { return o.Node == t.Node && o.Type == t.Type && o.Resource == t.Resource }
		if t.Rejected && t.Node != "" && slices.ContainsFunc(plugins, names) {
			refusing[t.Node] = true
		} else if t.Rejected {
			continue
		}
		if !slices.ContainsFunc(out.Problems, known) {
			out.Problems = append(out.Problems, t)
		}
	}
	slices.SortStableFunc(out.Problems, rejectedFirst)
	out.Problems = out.Problems[:min(len(out.Problems), maxNamed)]
	if used && out.Concerned() == 0 { // nobody counts the proxies that a module alone concerns
		out.Accepted, out.NotConcerned = out.NotConcerned, 0
	}
	take(&out.Count, &out.Rejected, len(refusing))
	take(&out.Count, &out.Waiting, now.Waiting)
	return out
}

// take raises a part of a count up to n, by proxies that are counted as accepted or not concerned.
func take(c *status.Count, part *int, n int) {
	for _, from := range []*int{&c.Accepted, &c.NotConcerned} {
		lacking := min(*from, max(0, n-*part))
		*from, *part = *from-lacking, *part+lacking
	}
}
