package capture

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// WhenDown says what happens to connections that would be captured while there is no sidecar that
// takes them.
type WhenDown string

// The choices.
const (
	// Refuse leaves the rules in force, so that such connections are refused. Nothing goes past the
	// sidecar.
	Refuse WhenDown = "REFUSE"
	// Pass takes the rules away, so that such connections go where they would go without a mesh.
	Pass WhenDown = "PASS"
)

const (
	// checkEvery is how often a Keeper compares the rules in force with those that should be.
	checkEvery = 3 * time.Second
	// lookEvery is how often it looks whether the sidecar lives, if that matters.
	lookEvery = 250 * time.Millisecond
)

// Keeper keeps the rules of a machine in force while there is a sidecar.
type Keeper struct {
	Firewall Firewall
	Rules    Rules // once it runs, Replace changes them
	WhenDown WhenDown
	// Live says whether the sidecar takes connections.
	Live   func(context.Context) bool
	Logger *slog.Logger

	released atomic.Bool

	mu     sync.Mutex // guards Rules, too
	status Status
}

// Status is what a Keeper has found and done.
type Status struct {
	State State     `json:"state"`
	Since time.Time `json:"since"`
	// Mended counts how often the rules were put in force again after others had changed them.
	Mended   int      `json:"mended"`
	WhenDown WhenDown `json:"whenDown"`
	// Problem is why the rules are not as they should be, empty if they are.
	Problem string `json:"problem,omitempty"`
}

// Status returns what is known now.
func (k *Keeper) Status() Status {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.status
}

// Start puts the rules in force, unless they wait for the sidecar. Its error says what the machine
// lacks.
func (k *Keeper) Start(ctx context.Context) error {
	if err := k.Rules.Validate(); err != nil {
		return err
	}
	if k.WhenDown == Pass {
		return k.keep(ctx, false)
	}
	return k.keep(ctx, true)
}

// Run keeps the rules in force until ctx ends, and puts them there again when others have changed
// or removed them. At the end captured connections have no sidecar: WhenDown says what happens to
// them.
func (k *Keeper) Run(ctx context.Context) {
	look := checkEvery
	if k.WhenDown == Pass {
		look = lookEvery
	}
	tick := time.NewTicker(look)
	defer tick.Stop()
	live, checked := false, time.Time{}
	for {
		now := k.WhenDown == Refuse || k.Live(ctx)
		if ctx.Err() == nil && (now != live || time.Since(checked) >= checkEvery) {
			if now != live {
				k.Logger.Info("captured traffic follows the sidecar", "captured", now)
			}
			live, checked = now, time.Now()
			_ = k.keep(ctx, live) // the status has it
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			k.stop()
			return
		}
	}
}

// Replace has other rules put in force, at the next look.
func (k *Keeper) Replace(r Rules) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.Rules, k.status.State = r, Other
}

// rules are the present ones.
func (k *Keeper) rules() Rules {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.Rules
}

// Release has the rules go when Run ends, whatever WhenDown says.
func (k *Keeper) Release() { k.released.Store(true) }

// stopWithin bounds how long the rules may take to go.
const stopWithin = 5 * time.Second

func (k *Keeper) stop() {
	if k.WhenDown == Refuse && !k.released.Load() {
		k.Logger.Warn("connections that are captured are refused until the agent runs again; portolan-agent capture remove lets them pass")
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	_ = k.keep(ctx, false) // the log has it
}

// keep has the rules in force, or away.
func (k *Keeper) keep(ctx context.Context, inForce bool) error {
	was, rules := k.Status(), k.rules()
	state, err := k.Firewall.Check(ctx, rules)
	mended := 0
	switch {
	case err != nil:
	case inForce && state != InForce:
		if err = k.Firewall.Apply(ctx, rules); err != nil {
			break
		}
		if was.State == InForce {
			mended = 1
			k.Logger.Warn("others have changed the rules of capture; they are in force again", "found", state)
		}
		state = InForce
	case !inForce && state != Absent:
		if err = k.Firewall.Remove(ctx); err == nil {
			state = Absent
		}
	}
	if ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	problem := ""
	if err != nil {
		problem = err.Error()
		if problem != was.Problem {
			k.Logger.Error("the rules of capture are not as they should be", "err", err)
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if state != was.State {
		k.status.Since = time.Now().UTC()
	}
	k.status.State, k.status.Problem, k.status.WhenDown = state, problem, k.WhenDown
	k.status.Mended += mended
	return err
}
