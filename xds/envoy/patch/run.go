package patch

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
)

// run is one attempt to apply patches to a message.
type run struct {
	// current is the patch that is being applied.
	current *Patch
	// applied and failed are the patches that changed something, and those that could not.
	applied map[*Patch]bool
	failed  map[*Patch]error
	// changes counts the changes.
	changes int
	// invalid is why what the patches made together is invalid.
	invalid error
}

// step lets a patch change something.
func (r *run) step(p *Patch, change func() error) {
	r.current = p
	if err := change(); err != nil {
		r.failed[p] = err
		return
	}
	r.applied[p] = true
	r.changes++
}

// done notes that a patch changed something.
func (r *run) done(p *Patch) { r.step(p, func() error { return nil }) }

// merge merges the value of a patch.
func (r *run) merge(dst proto.Message, p *Patch) {
	r.step(p, func() error {
		p.merging().message(dst.ProtoReflect(), p.value.ProtoReflect())
		return nil
	})
}

// edit changes a message of its own by patches. It returns an invalid message (nil) to remove it.
type edit[M proto.Message] func(r *run, m M, patches []*Patch) M

// attempt applies patches to a copy of a message. If a patch panics, it has failed.
func attempt[M proto.Message](m M, patches []*Patch, change edit[M]) (out M, r *run) {
	r = &run{applied: map[*Patch]bool{}, failed: map[*Patch]error{}}
	defer func() {
		if cause := recover(); cause != nil {
			if r.current == nil {
				panic(cause) // a fault of our own
			}
			out, r.failed[r.current] = m, fmt.Errorf("the patch panicked: %v", cause)
		}
	}()
	out = change(r, proto.CloneOf(m), patches)
	r.current = nil
	if r.invalid == nil && len(r.applied) > 0 && out.ProtoReflect().IsValid() {
		r.invalid = broken(out)
	}
	return out, r
}

// apply returns what the patches make of a message, without those that fail.
func apply[M proto.Message](m M, patches []*Patch, change edit[M]) (M, []Result) {
	failed := map[*Patch]error{}
	rest := patches
	for {
		out, r := attempt(m, rest, change)
		switch {
		case len(r.failed) > 0:
			for p, err := range r.failed {
				failed[p] = err
			}
			rest = without(rest, r.failed)
			continue
		case r.invalid != nil && broken(m) == nil:
			return apart(m, patches, rest, failed, change)
		case len(r.applied) == 0:
			out = m
		}
		return out, results(patches, r.applied, failed)
	}
}

// apart is apply where the patches of rest together make the message invalid: it leaves out each
// that makes it invalid with those before it.
func apart[M proto.Message](m M, patches, rest []*Patch, failed map[*Patch]error, change edit[M]) (M, []Result) {
	out, applied := m, map[*Patch]bool{}
	var kept []*Patch
	for _, p := range rest {
		with := append(slices.Clip(kept), p)
		next, r := attempt(m, with, change)
		switch {
		case r.failed[p] != nil:
			failed[p] = r.failed[p]
		case len(r.failed) > 0 || r.invalid != nil:
			failed[p] = r.invalid
			if r.invalid == nil {
				failed[p] = fmt.Errorf("with it a patch before it fails: %w", first(with, r.failed))
			}
		case len(r.applied) > 0:
			out, applied, kept = next, r.applied, with
		}
	}
	return out, results(patches, applied, failed)
}

func first(patches []*Patch, failed map[*Patch]error) error {
	for _, p := range patches {
		if failed[p] != nil {
			return failed[p]
		}
	}
	return nil
}

func without(patches []*Patch, failed map[*Patch]error) []*Patch {
	return slices.DeleteFunc(slices.Clone(patches), func(p *Patch) bool { return failed[p] != nil })
}

// results lists the patches that applied or failed, in order.
func results(patches []*Patch, applied map[*Patch]bool, failed map[*Patch]error) []Result {
	var out []Result
	for _, p := range patches {
		if err := failed[p]; err != nil || applied[p] {
			out = append(out, Result{Patch: p, Err: err})
		}
	}
	return out
}
