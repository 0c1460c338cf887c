package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A Change is a completed change of a member.
type Change struct {
	Member Member
	// Join are the client URLs by which an added member finds the cluster.
	Join []string
	// Warnings are further facts that an operator should know.
	Warnings []string
}

// nameForm matches the permitted names of members: names that flags and lists can hold.
var nameForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)

// CheckName returns why a text cannot be the name of a member.
func CheckName(name string) error {
	if nameForm.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%q is no name of a member: use up to 63 letters, digits, '-', '_' and '.', such as cp-1", name)
}

// CheckURL returns why a URL cannot be the address of a member. It must be
// https://HOST:PORT; http only on loopback.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Hostname() == "" || u.Port() == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return fmt.Errorf("%q is not a URL such as https://10.0.0.1:2380", text)
	case u.Path != "" || u.RawQuery != "" || u.User != nil || u.Fragment != "":
		return fmt.Errorf("%q has more than scheme, host and port: leave the rest out", text)
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.IsUnspecified() {
		return fmt.Errorf("%q is an address that nobody can call: use one of this machine", text)
	}
	if u.Scheme == "http" && !loopback(u.Hostname()) {
		return fmt.Errorf("%q is reached from other machines, which needs TLS: use https", text)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// Add adds a new member as a learner. The operator then starts it with its name, its
// peer URL and Change.Join on an empty data directory, and promotes it.
func (r *Roster) Add(ctx context.Context, name, peerURL string) (*Change, error) {
	peerURL = strings.TrimSuffix(peerURL, "/")
	if err := errors.Join(CheckName(name), CheckURL(peerURL)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	v, leader, err := r.leaderClient(ctx)
	if err != nil {
		return nil, err
	}
	if err := v.mayAdd(name, peerURL); err != nil {
		return nil, fmt.Errorf("add %s: %w: %w", name, ErrRefused, err)
	}
	var answer *clientv3.MemberAddResponse
	err = retryUntilSettled(ctx, func(ctx context.Context) error {
		answer, err = leader.MemberAddAsLearner(ctx, []string{peerURL})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("add %s: %w", name, changeError(err))
	}
	c := &Change{Member: Member{ID: answer.Member.ID, PeerURLs: answer.Member.PeerURLs, Learner: true}}
	for _, m := range v.Voters() {
		c.Join = append(c.Join, m.ClientURLs...)
	}
	return c, nil
}

// mayAdd returns why a member cannot be added.
func (v *Membership) mayAdd(name, peerURL string) error {
	for i := range v.Members {
		m := &v.Members[i]
		switch {
		case slices.ContainsFunc(m.ClientURLs, func(u string) bool { return strings.HasPrefix(u, "unix") }):
			return errors.New("the store is a cluster of one that no other machine can reach: restart its server with --store-name and --store-peer-url")
		case m.Name == name:
			return fmt.Errorf("there is a member %s at %s: choose another name, or remove that one first with portolan store member remove %s",
				name, strings.Join(m.PeerURLs, ","), name)
		case slices.Contains(m.PeerURLs, peerURL):
			return fmt.Errorf("%s is that of member %s: remove it first with portolan store member remove %s", peerURL, m, m)
		case m.Learner:
			return fmt.Errorf("member %s (%s) is a learner, and there can be one at a time: start it and promote it with portolan store member promote %s, or remove it",
				m, strings.Join(m.PeerURLs, ","), m)
		}
	}
	return nil
}

// A learner is checked every stepInterval. It is in step if it lacks at most inStep
// entries, as many as arrive in a moment.
const (
	stepInterval = 250 * time.Millisecond
	inStep       = 100
)

// Promote makes a learner a voter as soon as it is in step. If ctx ends before, the
// error is an ErrNotInStep that says how far it is.
func (r *Roster) Promote(ctx context.Context, name string) (*Change, error) {
	looks := context.WithoutCancel(ctx) // the last look, after ctx has ended, says how far it is
	for {
		v, leader, err := r.leaderClient(looks)
		if err != nil {
			return nil, err
		}
		m, err := v.Find(name)
		if err != nil {
			return nil, err
		}
		done, err := promote(looks, v, m, leader)
		if done || err != nil {
			return v.promoted(m), err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("promote %s: %w: %s: repeat the command when it has caught up", name, ErrNotInStep, v.logProgress(m))
		case <-time.After(stepInterval):
		}
	}
}

// promote tries once.
func promote(ctx context.Context, v *Membership, m *Member, leader *clientv3.Client) (done bool, err error) {
	switch {
	case !m.Learner:
		return false, fmt.Errorf("promote %s: %w: it is a voter already", m, ErrRefused)
	case m.Status() == Unstarted:
		return false, fmt.Errorf("promote %s: %w: it has not started yet: start it with --store-join first", m, ErrRefused)
	case m.Answer == nil || v.Lag(m) > inStep:
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	_, err = leader.MemberPromote(ctx, m.ID)
	if errors.Is(err, rpctypes.ErrMemberLearnerNotReady) || errors.Is(err, rpctypes.ErrUnhealthy) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("promote %s: %w", m, changeError(err))
	}
	return true, nil
}

func (v *Membership) promoted(m *Member) *Change {
	c := &Change{Member: *m}
	c.Member.Learner = false
	if n := len(v.Voters()) + 1; n%2 == 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("%d voters stand the loss of no more than %d do, and %d are needed for a write: add another", n, n-1, n/2+1))
	}
	return c
}

// Lag is how many entries of the leader's log a member has yet to apply; 0 if there is
// no leader or the member does not answer.
func (v *Membership) Lag(m *Member) uint64 {
	leader := v.Leader()
	if leader == nil || m.Answer == nil || m.Answer.Applied >= leader.Answer.Committed {
		return 0
	}
	return leader.Answer.Committed - m.Answer.Applied
}

// logProgress says how much of the log a learner has.
func (v *Membership) logProgress(m *Member) string {
	if m.Answer == nil {
		return "it does not answer: " + m.Err.Error()
	}
	return fmt.Sprintf("it has %d entries of the log and lacks %d", m.Answer.Applied, v.Lag(m))
}

// Remove removes a member from the cluster for good: its data directory is useless
// afterwards. A leader hands over its leadership first.
func (r *Roster) Remove(ctx context.Context, name string) (*Change, error) {
	v, leader, err := r.leaderClient(ctx)
	if err != nil {
		return nil, err
	}
	m, err := v.Find(name)
	if err != nil {
		return nil, err
	}
	if err := v.mayRemove(m); err != nil {
		return nil, fmt.Errorf("remove %s: %w: %w", m, ErrRefused, err)
	}
	c := &Change{Member: *m}
	if m.Status() == Leader {
		if leader, err = r.handOver(ctx, v, m, leader, c); err != nil {
			return nil, fmt.Errorf("remove %s: it leads, and could not hand that over: %w", m, changeError(err))
		}
	}
	err = retryUntilSettled(ctx, func(ctx context.Context) error {
		_, err := leader.MemberRemove(ctx, m.ID)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("remove %s: %w", m, changeError(err))
	}
	if rest := len(v.Voters()); !m.Learner && rest == 2 {
		c.Warnings = append(c.Warnings, "one voter is left: its loss is that of the store")
	}
	return c, nil
}

// mayRemove returns why a member cannot be removed. The remaining voters that answer
// must be a quorum.
func (v *Membership) mayRemove(m *Member) error {
	if m.Learner {
		return nil
	}
	left, answer := 0, 0
	var silent []Member
	for _, other := range v.Voters() {
		switch {
		case other.ID == m.ID:
			continue
		case other.serves():
			answer++
		default:
			silent = append(silent, other)
		}
		left++
	}
	need := left/2 + 1
	switch {
	case left == 0:
		return errors.New("it is the only voter: the store would be gone")
	case answer < need:
		return fmt.Errorf("of the %d voters left %d would answer, and %d are needed: bring %s back, or remove it, first", left, answer, need, Names(silent))
	}
	return nil
}

// handOver has another voter lead, and returns a client of it.
func (r *Roster) handOver(ctx context.Context, v *Membership, m *Member, leader *clientv3.Client, c *Change) (*clientv3.Client, error) {
	for _, other := range v.Serving() {
		if other.ID == m.ID {
			continue
		}
		if _, err := leader.MoveLeader(ctx, other.ID); err != nil {
			return nil, err
		}
		c.Warnings = append(c.Warnings, fmt.Sprintf("%s led the cluster: %s does now", m, other.String()))
		return r.conn(other.ClientURLs[0])
	}
	return nil, errors.New("no other voter answers")
}

// electionWait is how long a quorum of voters may take to elect a leader.
const electionWait = 5 * time.Second

// leaderClient looks at the members, and returns a client of the leader. It waits for an
// election that is about to happen.
func (r *Roster) leaderClient(ctx context.Context) (*Membership, *clientv3.Client, error) {
	giveUp := time.Now().Add(electionWait)
	for {
		v, err := r.Look(ctx)
		if err != nil {
			return nil, nil, err
		}
		leader, err := v.requireLeader()
		if err == nil {
			c, err := r.conn(leader.ClientURLs[0])
			return v, c, err
		}
		if !errors.Is(err, errNoLeader) || time.Now().After(giveUp) {
			return nil, nil, err
		}
		select {
		case <-ctx.Done():
			return nil, nil, err
		case <-time.After(stepInterval):
		}
	}
}

var errNoLeader = errors.New("the members of the store have no leader: try again in a moment")

// requireLeader returns the leader of a cluster that has a quorum.
func (v *Membership) requireLeader() (*Member, error) {
	voters, answer := v.Voters(), 0
	for i := range voters {
		if voters[i].Answer != nil {
			answer++
		}
	}
	leader := v.Leader()
	switch {
	case answer < v.Quorum():
		return nil, fmt.Errorf("the store has no quorum: %d of its %d voters answer, and %d are needed: bring back %s",
			answer, len(voters), v.Quorum(), Names(v.Silent()))
	case leader == nil:
		return nil, errNoLeader
	}
	return leader, nil
}

// changeWait bounds a change as a whole, and settleWait the time in which it is retried.
const (
	changeWait = 15 * time.Second
	settleWait = 7 * time.Second
)

// retryUntilSettled retries a change that etcd refuses until members have been connected to each
// other for 5 seconds.
// https://github.com/etcd-io/etcd/issues/6305
func retryUntilSettled(ctx context.Context, change func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	giveUp := time.Now().Add(settleWait)
	for {
		err := change(ctx)
		if !errors.Is(err, rpctypes.ErrUnhealthy) || time.Now().After(giveUp) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(stepInterval):
		}
	}
}

// changeError adds what to do to etcd's refusals.
func changeError(err error) error {
	for _, known := range []struct {
		err   error
		words string
	}{
		{rpctypes.ErrUnhealthy, "not all members have been connected to each other for 5 seconds: see which is away with portolan store member list"},
		{rpctypes.ErrMemberNotEnoughStarted, "too few members would be started: start those that were added first"},
		{rpctypes.ErrTooManyLearners, "there can be one learner at a time: promote or remove it first"},
		{rpctypes.ErrPeerURLExist, "another member has this peer URL"},
	} {
		if errors.Is(err, known.err) {
			return fmt.Errorf("%w: %s: %w", ErrRefused, known.words, err)
		}
	}
	return plain(err)
}
