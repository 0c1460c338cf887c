package mesh

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/portolan-mesh/portolan/cache"
)

// TestChangedAliasesHaveKeys: after any change of services, what a view answers of hosts and of their aliases
// differs only where the delta has the key.
func TestChangedAliasesHaveKeys(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := (&draw{t: t}).mesh()
		d.in.Configs = cache.NewSnapshot(1, d.configs)
		p := New(d.in)
		for range rapid.IntRange(1, 20).Draw(t, "pushes") {
			for range rapid.IntRange(1, 2).Draw(t, "changes") {
				d.service()
			}
			next := p.Next(d.in)
			keys := Diff(p, next).Keys()
			var named []string
			for c := range Diff(p, next).Hosts() {
				named = append(named, c.Key)
			}
			for _, namespace := range testNamespaces {
				before, after := NewView(p, Class{Namespace: namespace}), NewView(next, Class{Namespace: namespace})
				for _, h := range append([]string{"web.shop.svc.cluster.local"}, testHosts[:2]...) {
					for _, table := range []Table{Hosts, Aliases} {
						q := Query{RowKey{table, h}, viaAny}
						if before.Answer(q) == after.Answer(q) {
							continue
						}
						if !slices.Contains(keys, q.Row) {
							t.Fatalf("%s: %v of %s changed from %v to %v without its key", namespace, table, h, before.Answer(q), after.Answer(q))
						}
						if table == Hosts && !slices.Contains(named, h) {
							t.Fatalf("%s: %s is not among the changed hosts %v", namespace, h, named)
						}
					}
				}
			}
			p = next
		}
	})
}
