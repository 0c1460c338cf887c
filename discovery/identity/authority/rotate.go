package authority

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/portolan-mesh/portolan/storage"
)

// margin is how long after the replacement of a root a server may still sign with it, because
// its cache or its clock is behind.
const margin = 10 * time.Minute

// Rotate does one step of a rotation of the root: RotateStart, RotateFinish or
// RotateAbort. There is no deadline for the next step. It refuses to finish while certificates
// that the former root signed may be valid, unless force is set. It implements
// maintenance.Authority.
func (a *Authority) Rotate(ctx context.Context, step string, force bool) error {
	if a.o.Files != nil {
		return fmt.Errorf("%w: the certificate authority is of files: replace these, the roots in --ca-root first", storage.ErrInvalid)
	}
	steps := map[string]func(*material) (*material, error){
		RotateStart:  a.start,
		RotateFinish: func(m *material) (*material, error) { return a.finish(m, force) },
		RotateAbort:  a.abort,
	}
	do, ok := steps[step]
	if !ok {
		return fmt.Errorf("%w: %q is no step of a rotation: use start, finish or abort", storage.ErrInvalid, step)
	}
	if err := a.change(ctx, "rotation of the root: "+step, do); err != nil {
		return err
	}
	a.o.Logger.Info("rotation of the root of the certificate authority", "step", step)
	return nil
}

func (a *Authority) start(m *material) (*material, error) {
	if m.former != nil {
		return nil, fmt.Errorf("%w: a rotation is under way since %s: finish or abort it first", storage.ErrExists, stamp(m.state.Started))
	}
	return m.started(a.o.TrustDomain, a.o.Now())
}

var errStill = fmt.Errorf("%w: no rotation is under way: portolan ca rotate start begins one", storage.ErrNotFound)

func (a *Authority) finish(m *material, force bool) (*material, error) {
	if m.former == nil {
		return nil, errStill
	}
	if until := m.mayFinish(); !force && a.o.Now().Before(until) {
		return nil, fmt.Errorf("%w: certificates that the former root has signed may be valid until %s: finish the rotation then; --force does it now, and they are refused everywhere",
			storage.ErrInvalid, stamp(until))
	}
	return m.finished(), nil
}

func (a *Authority) abort(m *material) (*material, error) {
	if m.former == nil {
		return nil, errStill
	}
	return m.aborted(), nil
}

// mayFinish returns when all certificates of the former root have expired.
func (m *material) mayFinish() time.Time { return m.state.Started.Add(m.state.Longest + margin) }

// AuthorityStatus implements maintenance.Authority.
func (a *Authority) AuthorityStatus(context.Context) (Status, error) {
	out := Status{TrustDomain: a.o.TrustDomain, Source: a.key().String(), LongestLife: a.o.MaxLife.String()}
	if a.o.Files != nil {
		out.Source = a.o.Files.Cert
	}
	if err := a.Degraded(); err != nil {
		out.Problem = err.Error()
	}
	m, err := a.current()
	switch {
	case errors.Is(err, errNone):
		return out, nil
	case errors.Is(err, errUnread):
		return out, err
	case err != nil: // out.Problem has it
		return out, nil
	}
	out.Signs, out.Bundle = describe(m.cert), string(inPEM(m.roots...))
	for _, root := range m.roots {
		out.Roots = append(out.Roots, describe(root))
	}
	if m.former != nil {
		out.Rotation = &Rotation{Started: m.state.Started, Former: describe(m.former).Fingerprint, MayFinish: m.mayFinish()}
	}
	return out, nil
}
