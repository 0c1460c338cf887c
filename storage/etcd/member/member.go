package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
)

// Options say where one etcd member keeps its data and how it is reached.
type Options struct {
	// DataDir holds the lock file and etcd's own directory. It is made if it
	// does not exist; its path may have any length.
	DataDir string
	// Socket is the path of a unix socket to serve on, absolute and at most 107 bytes.
	// Its directory must be private to this user; it is made if it does not exist. Empty
	// means no socket: only Client reaches the member.
	Socket string
	// Quota is the size in bytes at which the database takes no more writes; 0 is
	// DefaultQuota.
	Quota int64
	// Upkeep says how Run maintains the member.
	Upkeep upkeep.Policy
	// Founding says whether a new store may begin if the directory has none.
	Founding Founding
	// Cluster makes the member one of several; nil means a cluster of one, without any TCP
	// port. One of several needs a Socket too: its parent watches it there.
	Cluster *Cluster
	// StopTimeout bounds how long Close waits for etcd; 0 is 10 seconds.
	StopTimeout time.Duration
	// Logger gets the messages of the member and of etcd: etcd's warnings and errors at
	// their level, its information at Debug. nil discards all.
	Logger *slog.Logger

	// parent is the process that started this one to run the store; the parent maintains
	// the store. Zero means that this process has no such parent.
	parent processID
	// waiting is called repeatedly with what a member that is not ready waits for.
	waiting func(waiting)
	// leaving is called before the directory is freed. If the process is killed before
	// that, the lock file still names it, and the next holder of the directory cleans up.
	leaving func()
	// servers collects etcd's gRPC servers.
	servers *grpcServers
}

// waiting is the report of a member that waits for others.
type waiting struct {
	// For says what the member waits for, in words for an operator.
	For string `json:"for"`
	// Others are the client URLs of the other members that it knows.
	Others []string `json:"others,omitempty"`
}

// A Member is one embedded etcd that runs in this process. The methods may be
// called by several goroutines. It is a prometheus.Collector.
type Member struct {
	etcd        *embed.Etcd
	client      *clientv3.Client
	lock        *dirLock
	keeper      *upkeep.Keeper // nil if the parent has it
	stopTimeout time.Duration
	servers     *grpcServers
	several     bool // the cluster has several members

	closing   chan struct{}
	closeOnce sync.Once
	closeErr  error
}

// Start starts etcd on a data directory and returns when it is ready. One of several
// members waits until a majority of them runs. Start fails with
//
//   - ErrInUse if another process has the directory; it first waits for up to 5 seconds if
//     that process is about to end because its parent has;
//   - ErrEmptied if the directory had a store and has none any more;
//   - ErrNoStore if the directory has no store, and none may begin there;
//   - ErrNoSpace if the file system has too little space for etcd to start;
//   - ErrDamaged if etcd cannot use the data;
//   - ErrRemoved if the data is of a member that its cluster has removed;
//   - ErrUsed if there is no data, and the cluster knows the member as one with data.
//
// When ctx ends before etcd is ready, Start stops it and returns the reason. Once it is
// ready, only Close, or Run, ends it.
func Start(ctx context.Context, opts Options) (*Member, error) {
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	if err := CheckFounding(opts.DataDir, opts.Founding, opts.Cluster); err != nil {
		return nil, err
	}
	if err := makeDataDir(opts.DataDir); err != nil {
		return nil, err
	}
	if err := checkSpace(opts.DataDir); err != nil {
		return nil, err
	}
	socketDir := ""
	if opts.Socket != "" {
		socketDir = filepath.Dir(opts.Socket)
	}
	lock, err := lockDir(ctx, opts.DataDir, newHolder(opts.parent, socketDir))
	if err != nil {
		return nil, err
	}
	lock.leaving = opts.leaving
	if err := prepareSocket(opts.Socket); err != nil {
		lock.release()
		return nil, err
	}
	opts.servers = &grpcServers{}
	etcd, released, err := startEtcd(ctx, opts)
	if err != nil {
		if released {
			lock.release()
		}
		return nil, fmt.Errorf("start etcd on %s: %w", opts.DataDir, err)
	}
	mark(opts.DataDir, opts.Logger)
	m := &Member{
		etcd:        etcd,
		client:      clientWithin(etcd),
		lock:        lock,
		servers:     opts.servers,
		several:     opts.Cluster != nil,
		stopTimeout: opts.StopTimeout,
		closing:     make(chan struct{}),
	}
	if err := m.settle(ctx, opts.Cluster, opts.Logger); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	if opts.parent.PID != 0 {
		return m, nil
	}
	target := upkeep.Target{Client: m.client, Endpoint: memberName, Defragment: defragmenting(etcd), DataDir: opts.DataDir}
	if m.keeper, err = upkeep.New(target, opts.Upkeep, opts.Logger); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// Client returns the client that calls this member without a socket. The member owns it:
// Close closes it.
func (m *Member) Client() *clientv3.Client { return m.client }

// Healthy says whether the member runs.
func (m *Member) Healthy() bool {
	select {
	case <-m.closing:
		return false
	case <-m.etcd.Server.StopNotify():
		return false
	default:
		return true
	}
}

// Ready returns nil if the member can be read and written, or why not.
func (m *Member) Ready() error {
	if !m.Healthy() {
		return errors.New("the store has stopped: start the server again")
	}
	return fullError(m.keeper)
}

// Keeper returns the keeper that maintains the member while Run runs.
func (m *Member) Keeper() *upkeep.Keeper { return m.keeper }

// Run maintains the member until ctx ends, or the member is closed, and returns nil when
// the member has stopped. If etcd ends before that, Run cleans up and returns why.
func (m *Member) Run(ctx context.Context) error {
	cause := m.keep(ctx)
	select {
	case <-m.closing:
		cause = nil
	default:
	}
	err := m.Close()
	if cause != nil {
		return fmt.Errorf("etcd ended: %w", cause)
	}
	return err
}

// keep maintains the member until it is to end, or returns why it has ended.
func (m *Member) keep(ctx context.Context) error {
	if m.keeper == nil {
		return m.await(ctx)
	}
	var kept sync.WaitGroup
	defer kept.Wait()
	keeping, stop := context.WithCancel(ctx)
	defer stop()
	kept.Go(func() { _ = m.keeper.Run(keeping) }) // always nil
	return m.await(ctx)
}

// removalInterval is how often a member checks whether it was removed. A removed etcd
// runs on silently for a second, and panics if its status is requested in that time.
// https://github.com/etcd-io/etcd/issues/21966
const removalInterval = 20 * time.Millisecond

// await waits until the member is to end, or returns why it has ended.
func (m *Member) await(ctx context.Context) error {
	var removal <-chan time.Time
	if m.several {
		tick := time.NewTicker(removalInterval)
		defer tick.Stop()
		removal = tick.C
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.closing:
			return nil
		case err := <-m.etcd.Err():
			return err
		case <-m.etcd.Server.StopNotify():
			return errors.New("its server stopped by itself")
		case <-removal:
			if m.etcd.Server.Cluster().Member(m.etcd.Server.MemberID()) == nil {
				m.servers.stopAtOnce()
				return ErrRemoved
			}
		}
	}
}

// Close closes the client, stops etcd and frees the data directory. After StopTimeout
// it gives up with an error; the directory then stays locked until this process ends.
// Acknowledged writes are on disk in any case. Later calls wait for the first and
// return the same.
func (m *Member) Close() error {
	m.closeOnce.Do(func() {
		close(m.closing)
		// The client's Close always reports the end of its own context.
		_ = m.client.Close()
		if m.closeErr = m.stop(); m.closeErr == nil {
			m.lock.release()
		}
	})
	return m.closeErr
}

// complete returns the options with their defaults, or what is wrong with them.
func (o Options) complete() (Options, error) {
	if o.DataDir == "" {
		return o, errors.New("data directory: not set: name a directory this user can write")
	}
	abs, err := filepath.Abs(o.DataDir)
	if err != nil {
		return o, fmt.Errorf("data directory %s: %w", o.DataDir, err)
	}
	o.DataDir = abs
	o.StopTimeout = cmp.Or(o.StopTimeout, 10*time.Second)
	if o.Quota = cmp.Or(o.Quota, DefaultQuota); o.Quota < 0 {
		return o, fmt.Errorf("quota of the store: %d is negative", o.Quota)
	}
	if o.Cluster != nil && o.Socket == "" {
		return o, errors.New("a member of several needs a socket")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.waiting == nil {
		o.waiting = func(waiting) {}
	}
	return o, nil
}

// makeDataDir makes a data directory that only this user can read.
func makeDataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("data directory %s: %w: choose a directory this user can make and write", dir, err)
	}
	return nil
}

// completeConfig returns the configuration of a member, in this process or a child.
func completeConfig(ctx context.Context, opts Options) (*embed.Config, error) {
	cfg, err := etcdConfig(opts)
	if err != nil || opts.Cluster == nil {
		return cfg, err
	}
	initial, joining := []Peer(nil), false
	if !wal.Exist(walDir(opts.DataDir)) {
		initial, joining, err = opts.Cluster.initialMembers(ctx, opts.Logger, func(words string) { opts.waiting(waiting{For: words}) })
		if err != nil {
			return nil, err
		}
	}
	return cfg, opts.Cluster.configure(cfg, opts, initial, joining)
}

// startEtcd starts etcd and waits until it is ready. If it returns an error, released
// says whether etcd has let go of the data directory. StartEtcd cannot be interrupted,
// and it waits while another etcd, which does not know our lock, has the directory open.
// So startEtcd calls it in a goroutine.
// https://github.com/etcd-io/etcd/pull/6784
func startEtcd(ctx context.Context, opts Options) (etcd *embed.Etcd, released bool, err error) {
	cfg, err := completeConfig(ctx, opts)
	if err != nil {
		return nil, true, err
	}
	type result struct {
		etcd *embed.Etcd
		err  error
	}
	started := make(chan result, 1)
	existed := hasData(opts.DataDir)
	go func() {
		etcd, err := startRecovering(cfg)
		started <- result{etcd, explainClusterError(diagnose(opts.DataDir, existed, err), opts)}
	}()
	var r result
	select {
	case r = <-started:
	case <-ctx.Done():
		select {
		case r = <-started:
		case <-time.After(opts.StopTimeout):
			return nil, false, fmt.Errorf("%w, and etcd did not let go of the directory: does another etcd use it?", context.Cause(ctx))
		}
	}
	if r.err != nil {
		var panicked *panicError
		if errors.As(r.err, &panicked) {
			opts.Logger.Debug("etcd panicked", "stack", panicked.stack)
			return nil, false, r.err
		}
		return nil, true, r.err
	}
	err = checkIdentity(r.etcd, opts)
	if err == nil {
		err = awaitReady(ctx, r.etcd, opts)
	}
	if err == nil && existed && opts.Cluster != nil {
		err = compareData(r.etcd, opts)
	}
	if err != nil {
		// Close hangs on a member that never became ready.
		// https://github.com/etcd-io/etcd/issues/9533
		stopErr := stopEtcd(r.etcd, r.etcd.Server.HardStop, opts.StopTimeout)
		return nil, stopErr == nil, errors.Join(err, stopErr)
	}
	return r.etcd, true, nil
}

// stop stops a member that is ready. One of several members first hands over the
// leadership.
func (m *Member) stop() error {
	return stopEtcd(m.etcd, func() {
		if m.several {
			handOverLeadership(m.etcd)
		}
		m.servers.stopGracefully()
	}, m.stopTimeout)
}

// stopEtcd calls first, then stops etcd, within a limit.
func stopEtcd(etcd *embed.Etcd, first func(), limit time.Duration) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		first()
		etcd.Close()
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-stopped:
		return nil
	case <-timer.C:
		return fmt.Errorf("etcd did not stop within %s", limit)
	}
}
