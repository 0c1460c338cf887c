package upkeep

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
)

// lookTimeout bounds one request to the member.
const lookTimeout = 5 * time.Second

// Target is the member to maintain.
type Target struct {
	// Client reaches this member and no other. The caller closes it.
	Client *clientv3.Client
	// Endpoint is the endpoint of the member; any text for a client that calls it within
	// the process.
	Endpoint string
	// Defragment defragments a member in this process, for whose client etcd 3.7.3
	// panics; nil means through Client.
	Defragment func() error
	// DataDir is the directory whose file system must not become full.
	DataDir string
	// Roster is the cluster of the member; nil says that it is the only one. The caller
	// closes it.
	Roster *cluster.Roster
}

// Status is the result of a look.
type Status struct {
	// At is the time of the look.
	At time.Time
	// Size is the size of the database file: InUse of it is data, and the rest can be
	// reused. The member takes no writes when Size reaches Quota.
	Size, InUse, Quota int64
	// Revision is the newest revision. Compacted is the last known compaction, 0 before
	// the first.
	Revision, Compacted int64
	// Alarms are the alarms, NoSpace and Corrupt, that any member has raised. Raised
	// lists the ids of the members by alarm.
	Alarms []string
	Raised map[string][]uint64
	// Member is the id of this member.
	Member uint64

	leader uint64
}

// The alarms of etcd.
const (
	// NoSpace is raised by a write that exceeds the quota.
	NoSpace = "NOSPACE"
	// Corrupt is raised by members whose data differ.
	Corrupt = "CORRUPT"
)

var alarmKinds = []string{NoSpace, Corrupt}

// Alarmed says whether an alarm is raised.
func (s *Status) Alarmed(alarm string) bool { return slices.Contains(s.Alarms, alarm) }

// hasRoom says whether a database of the given size has room for writes under the quota.
func (s *Status) hasRoom(size int64) bool { return size < s.Quota-s.Quota/50 }

// hasAmpleRoom says whether a store of the given size has room for large writes too. If not,
// everything that can be freed is freed: otherwise a large write would raise the alarm
// again at once.
func (s *Status) hasAmpleRoom(size int64) bool { return size < s.Quota/5*4 }

// A Keeper maintains one member. Its methods may be called by several goroutines; it
// does one thing at a time. It is a prometheus.Collector.
type Keeper struct {
	target  Target
	p       Policy
	log     *slog.Logger
	metrics *metrics

	status atomic.Pointer[Status]
	space  atomic.Pointer[Space]
	busy   atomic.Bool
	turn   chan struct{} // holds a token; its owner may use what follows

	compactor compactor
	defrag    defragmenter
	recovery  quotaRecovery
	warnings  warnings
}

// New returns a Keeper that waits for Run. A nil logger discards the log.
func New(target Target, p Policy, logger *slog.Logger) (*Keeper, error) {
	if target.Client == nil || target.DataDir == "" {
		return nil, errors.New("upkeep: a client and a data directory are required")
	}
	p, err := p.complete()
	if err != nil {
		return nil, err
	}
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	k := &Keeper{target: target, p: p, log: logger, metrics: newMetrics(), turn: make(chan struct{}, 1)}
	k.turn <- struct{}{}
	return k, nil
}

// Run maintains the member until ctx ends, and then returns nil. If it cannot reach the
// member it tries again later.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(k.p.Interval)
	defer tick.Stop()
	for {
		if err := k.Check(ctx); err != nil && ctx.Err() == nil {
			k.log.Debug("the store was not looked after", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Status returns the result of the last look, nil before the first.
func (k *Keeper) Status() *Status { return k.status.Load() }

// Space returns the space of the data directory's file system, nil before the first
// look.
func (k *Keeper) Space() *Space { return k.space.Load() }

// Busy says whether the member is being defragmented, during which it answers nobody.
func (k *Keeper) Busy() bool { return k.busy.Load() }

// Check looks at the member once and does the work that is due.
func (k *Keeper) Check(ctx context.Context) error {
	done, err := k.awaitTurn(ctx)
	if err != nil {
		return err
	}
	defer done()
	k.watchSpace()
	s, err := k.readStatus(ctx)
	if err != nil {
		return err
	}
	k.watchDamage(s)
	if s.leader == 0 {
		return nil // the rest needs the other members
	}
	if s.Alarmed(NoSpace) {
		k.makeRoom(ctx, s)
		return nil
	}
	k.writesAgain(s)
	k.recovery.noAlarm(k)
	k.compactOld(ctx, s)
	if k.defrag.due(k, s) {
		k.defragmentNow(ctx, s)
	}
	k.watchQuota()
	return nil
}

// A Change is the Status before and after an operation on the member.
type Change struct{ Before, After *Status }

// change waits for its turn and runs an operation between two looks.
func (k *Keeper) change(ctx context.Context, operate func(*Status) error) (Change, error) {
	done, err := k.awaitTurn(ctx)
	if err != nil {
		return Change{}, err
	}
	defer done()
	before, err := k.readStatus(ctx)
	if err != nil {
		return Change{}, err
	}
	if err := operate(before); err != nil {
		return Change{Before: before}, err
	}
	after, err := k.readStatus(ctx)
	return Change{Before: before, After: after}, err
}

// awaitTurn waits for the caller's turn. The caller calls done when it has finished.
func (k *Keeper) awaitTurn(ctx context.Context) (done func(), err error) {
	select {
	case <-k.turn:
		return func() { k.turn <- struct{}{} }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readStatus asks the member for its status.
func (k *Keeper) readStatus(ctx context.Context) (*Status, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	answer, err := k.ask(ctx)
	if err != nil {
		return nil, fmt.Errorf("status of the store: %w", err)
	}
	s := &Status{
		At: k.p.Now(), Size: answer.DbSize, InUse: answer.DbSizeInUse, Quota: answer.DbSizeQuota,
		Revision: answer.Header.Revision, Compacted: k.compactor.last, Raised: raised(answer.Errors),
		Member: answer.Header.MemberId, leader: answer.Leader,
	}
	s.Alarms = slices.Sorted(maps.Keys(s.Raised))
	k.status.Store(s)
	k.defrag.noteRevision(s)
	return s, nil
}

// ask asks over the existing connection: the client's own method makes a new one each
// time.
func (k *Keeper) ask(ctx context.Context) (*pb.StatusResponse, error) {
	if connection := k.target.Client.ActiveConnection(); connection != nil {
		answer, err := pb.NewMaintenanceClient(connection).Status(ctx, &pb.StatusRequest{})
		return answer, clientv3.ContextError(ctx, err)
	}
	answer, err := k.target.Client.Status(ctx, k.target.Endpoint) // for a member in this process
	return (*pb.StatusResponse)(answer), err
}

// alarmForm is the form of an alarm among the errors in etcd's status.
var alarmForm = regexp.MustCompile(`^memberID:(\d+)\s+alarm:(\w+)`)

// raised returns the members that have raised each alarm.
func raised(errs []string) map[string][]uint64 {
	out := map[string][]uint64{}
	for _, e := range errs {
		m := alarmForm.FindStringSubmatch(e)
		if m == nil || !slices.Contains(alarmKinds, m[2]) {
			continue
		}
		id, _ := strconv.ParseUint(m[1], 10, 64) // digits
		out[m[2]] = append(out[m[2]], id)
	}
	return out
}

// watchDamage reports members whose data differs from the others' data. If etcd does not
// know which member that is, it names the member 0.
func (k *Keeper) watchDamage(s *Status) {
	if !s.Alarmed(Corrupt) || !k.warnings.corrupt.shouldLog(k.p.Now()) {
		return
	}
	for _, id := range s.Raised[Corrupt] {
		attributes := []any{"member", cluster.FormatID(id)}
		if id == s.Member {
			attributes = append(attributes, "dir", k.target.DataDir)
		}
		k.log.Error("etcd says that the data of its members differs: replace the member that does (portolan store member remove, and add); "+
			"a store of one is restored with portolan store restore", attributes...)
	}
}

// A notice is a message that is logged when its cause begins, and every hour while it
// lasts.
type notice struct {
	on     bool
	logged time.Time
}

// noticeEvery is how often a notice is repeated.
const noticeEvery = time.Hour

// shouldLog says whether to log the message now, and notes that it was.
func (n *notice) shouldLog(now time.Time) bool {
	if n.on && now.Sub(n.logged) < noticeEvery {
		return false
	}
	n.on, n.logged = true, now
	return true
}

// clear ends the notice, and says whether it was raised.
func (n *notice) clear() bool {
	was := n.on
	n.on = false
	return was
}

// warnings are the messages for an operator.
type warnings struct{ space, noSpace, quota, corrupt, compact, defrag notice }

// mib returns a number of bytes in MiB, for people.
func mib(bytes int64) int64 { return bytes >> 20 }
