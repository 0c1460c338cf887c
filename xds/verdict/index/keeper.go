package index

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/status"
	"github.com/portolan-mesh/portolan/xds/verdict"
	"github.com/portolan-mesh/portolan/xds/verdict/finding"
)

// Source has the current facts, and those after operations that are not applied.
type Source interface {
	// Facts returns the facts of the last commit; false before the first commit.
	Facts() (verdict.Facts, bool)
	// WouldBe returns the facts of the last commit, and the facts after some operations on it;
	// false before the first commit.
	WouldBe(ops []storage.Op) (is, would verdict.Facts, known bool)
	// Handled returns when the source has handled all events that it received before the call,
	// or with the error of ctx.
	Handled(ctx context.Context) error
}

// Keeper keeps the newest Index of a source. Its methods may be called from any
// goroutine.
type Keeper struct {
	source Source

	mu     sync.Mutex
	newest *Index // guarded by mu

	mutual mutual
}

// NewKeeper returns a Keeper that has derived nothing yet.
func NewKeeper(source Source) *Keeper { return &Keeper{source: source} }

// Index returns the current verdicts; nil before the first commit. Its cost follows what has
// changed since the last call.
func (k *Keeper) Index() *Index {
	facts, known := k.source.Facts()
	if !known {
		return nil
	}
	return k.at(facts)
}

// Await waits until Index knows a revision of the store, or a later one. It returns the error of
// ctx.
func (k *Keeper) Await(ctx context.Context, revision int64) error {
	for {
		if facts, known := k.source.Facts(); known && facts.Mesh.Revision() >= revision {
			return nil
		}
		if err := k.source.Handled(ctx); err != nil {
			return err
		}
	}
}

// at derives the index of facts from the newest one, and keeps it as the newest.
func (k *Keeper) at(facts verdict.Facts) *Index {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.newest == nil || k.newest.world.Facts != facts {
		k.newest = k.newest.Next(facts)
	}
	return k.newest
}

// WouldBe returns the current verdicts, and those after some operations that are applied as
// one; nil before the first commit.
func (k *Keeper) WouldBe(ops []storage.Op) (is, would *Index) {
	return k.wouldBe(ops, (*Index).Next)
}

// wouldBe is WouldBe; next derives the verdicts after the operations.
func (k *Keeper) wouldBe(ops []storage.Op, next func(*Index, verdict.Facts) *Index) (is, would *Index) {
	from, to, known := k.source.WouldBe(ops)
	if !known {
		return nil, nil
	}
	is = k.at(from)
	return is, next(is, withoutReports(to))
}

// maxAdvised limits the warnings about other objects that one batch gets.
const maxAdvised = 20

// Advise returns the warnings of each operation of a batch: the verdicts on its object, what the
// batch opens to plaintext, and the new verdicts that it causes on other objects.
func (k *Keeper) Advise(ops []storage.Op) [][]finding.Advice {
	out := make([][]finding.Advice, len(ops))
	is, would := k.wouldBe(ops, (*Index).foresee) // the caller has the warnings of the schemas
	if is == nil {
		return out
	}
	own := map[config.Key]int{}
	for i, op := range ops {
		key := op.Target()
		own[key] = i
		if op.Config == nil {
			continue
		}
		for _, v := range slices.Concat(would.Of(key), stillPatched(is, op.Config)) {
			if !v.Alone && !v.Code.Follows() {
				out[i] = append(out[i], finding.Advice{Text: v.String(), Severity: v.Code.Severity().String()})
			}
		}
	}
	addLoosened(out, is.world.Facts, would.world.Facts, ops)
	more, dangling, worst := 0, false, verdict.Info
	for c := range Changed(is, would) {
		if !c.HasNew {
			continue
		}
		key := c.New.Of.Key()
		if _, written := own[key]; written {
			continue
		}
		for _, v := range c.New.Verdicts {
			if v.Code.Follows() || slices.ContainsFunc(c.Old.all(), func(o verdict.Verdict) bool { return same(v, o) }) {
				continue
			}
			i := causingOp(ops, own, v)
			advice := finding.Advice{Text: fmt.Sprintf("%s: %s", key, v), Severity: v.Code.Severity().String(), Dangling: ops[i].Config == nil && dangles(v)}
			if more++; more > maxAdvised {
				dangling, worst = dangling || advice.Dangling, min(worst, v.Code.Severity())
				continue
			}
			out[i] = append(out[i], advice)
		}
	}
	if more > maxAdvised {
		out[0] = append(out[0], finding.Advice{
			Text: fmt.Sprintf("%d more objects are concerned: see portolan analyze", more-maxAdvised), Severity: worst.String(), Dangling: dangling,
		})
	}
	return out
}

// Findings returns the verdicts after some operations, the current ones if there are no
// operations; false before the first commit.
func (k *Keeper) Findings(ops []storage.Op) (finding.List, bool) {
	is := k.Index()
	if is == nil {
		return finding.List{}, false
	}
	would := is
	if len(ops) > 0 {
		is, would = k.WouldBe(ops)
	}
	list := finding.List{Revision: is.world.Mesh.Revision(), Items: []finding.Finding{}}
	for l := range would.Lists() {
		for _, v := range l.Verdicts {
			list.Items = append(list.Items, findingOf(l.Of.Key(), v))
		}
	}
	list.Items = append(list.Items, would.ofServices(k.mutual.at(is.world.Facts))...)
	return list, true
}

func findingOf(key config.Key, v verdict.Verdict) finding.Finding {
	kind := v.Code.Kind()
	out := finding.Finding{
		Code: string(v.Code), Istio: kind.Istio, Severity: kind.Severity.String(), Object: objectOf(key),
		Field: v.Field, Message: v.Message, Remedy: v.Remedy,
	}
	if v.Other != (config.Key{}) {
		other := objectOf(v.Other)
		out.Other = &other
	}
	return out
}

func objectOf(key config.Key) finding.Object {
	return finding.Object{APIVersion: key.Kind.APIVersion(), Kind: key.Kind.Kind, Namespace: key.Namespace, Name: key.Name}
}

// causingOp returns the operation that causes a verdict on another object: the one on the object
// that the verdict names, else the first deletion, else the first operation.
func causingOp(ops []storage.Op, own map[config.Key]int, v verdict.Verdict) int {
	if i, named := own[v.Other]; named {
		return i
	}
	return max(0, slices.IndexFunc(ops, func(op storage.Op) bool { return op.Config == nil }))
}

// dangles reports whether the verdict says that the object refers to something missing, and
// that this has an effect. SelectorEmpty counts, although it is an Info: a deletion that takes
// the last workload leaves a service without endpoints.
func dangles(v verdict.Verdict) bool {
	kind := v.Code.Kind()
	return kind.Condition == status.ResolvedRefs && (kind.Severity <= verdict.Warning || v.Code == verdict.SelectorEmpty)
}

// same reports whether two verdicts on one object say the same about the same field.
func same(a, b verdict.Verdict) bool { return a.Code == b.Code && a.Field == b.Field }
