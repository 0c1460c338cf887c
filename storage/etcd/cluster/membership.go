package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The errors that callers tell apart. Any other error is of a cluster that could not be
// asked, or did not answer.
var (
	// ErrUnknown is the error of a name that no member has.
	ErrUnknown = errors.New("no such member")
	// ErrRefused is the error of a change that would do harm or makes no sense.
	ErrRefused = errors.New("refused")
	// ErrNotInStep is the error of a learner that has not caught up in time.
	ErrNotInStep = errors.New("not in step")
)

// A Member is one member, as the cluster knows it and as it answered.
type Member struct {
	ID uint64
	// Name is empty until the member has first started.
	Name string
	// PeerURLs are the URLs for other members, and ClientURLs those for clients.
	PeerURLs, ClientURLs []string
	// Learner says that the member takes all changes and has no vote.
	Learner bool
	// Answer is the member's own status; nil if it did not answer, and then Err is the
	// reason.
	Answer *Answer
	Err    error
}

// An Answer is a member's own status.
type Answer struct {
	// Leader is the member that it follows, 0 while it knows none.
	Leader uint64
	// Size is the size of its database, which Quota bounds; InUse of it is data.
	Size, InUse, Quota int64
	// Committed is the newest entry of the log that it knows to be committed, Applied the
	// newest one in its database.
	Committed, Applied uint64
	// Version is the version of its etcd.
	Version string
}

// A Status is the role of a member in its cluster.
type Status string

// The roles of members.
const (
	// Leader decides the order of all changes; it is one of the voters.
	Leader Status = "leader"
	// Voter counts for the quorum.
	Voter Status = "voter"
	// Learner catches up, or waits to be promoted.
	Learner Status = "learner"
	// Waiting answers, but knows no leader.
	Waiting Status = "waiting"
	// Unstarted was added and has not started yet.
	Unstarted Status = "unstarted"
	// Unreachable does not answer.
	Unreachable Status = "unreachable"
	// Stranger does not answer, but a member of another store does at its address.
	Stranger Status = "stranger"
)

// Statuses are all roles.
var Statuses = []Status{Leader, Voter, Learner, Waiting, Unstarted, Unreachable, Stranger}

// Status returns the role of the member.
func (m *Member) Status() Status {
	switch {
	case errors.As(m.Err, new(*StrangerError)):
		return Stranger
	case m.Name == "" && m.Answer == nil:
		return Unstarted
	case m.Answer == nil:
		return Unreachable
	case m.Answer.Leader == 0:
		return Waiting
	case m.Answer.Leader == m.ID:
		return Leader
	case m.Learner:
		return Learner
	}
	return Voter
}

// String returns the member's name, or its id if it has none.
func (m *Member) String() string {
	if m.Name != "" {
		return m.Name
	}
	return FormatID(m.ID)
}

// FormatID writes an id as etcd's tools show it.
func FormatID(id uint64) string { return fmt.Sprintf("%x", id) }

// serves says whether reads and writes through the member succeed.
func (m *Member) serves() bool { return m.Answer != nil && m.Answer.Leader != 0 && !m.Learner }

// Membership is the members at one moment, by name.
type Membership struct{ Members []Member }

// Leader is the member that leads, or nil.
func (v *Membership) Leader() *Member {
	for i := range v.Members {
		if v.Members[i].Status() == Leader {
			return &v.Members[i]
		}
	}
	return nil
}

// Serving are the members through which reads and writes succeed, by name.
func (v *Membership) Serving() []Member {
	return v.membersWhere(func(m *Member) bool { return m.serves() })
}

// Silent are the members that have started and do not answer, by name, strangers among them.
func (v *Membership) Silent() []Member {
	return v.membersWhere(func(m *Member) bool { return m.Status() == Unreachable || m.Status() == Stranger })
}

// Voters returns the members that count for the quorum.
func (v *Membership) Voters() []Member {
	return v.membersWhere(func(m *Member) bool { return !m.Learner })
}

// Quorum is how many voters are needed for a write.
func (v *Membership) Quorum() int { return len(v.Voters())/2 + 1 }

func (v *Membership) membersWhere(which func(*Member) bool) []Member {
	var out []Member
	for i := range v.Members {
		if which(&v.Members[i]) {
			out = append(out, v.Members[i])
		}
	}
	return out
}

// Find returns the member with a name, an id or a peer URL.
func (v *Membership) Find(name string) (*Member, error) {
	for _, matches := range []func(*Member) bool{
		func(m *Member) bool { return m.Name == name },
		func(m *Member) bool { return FormatID(m.ID) == strings.ToLower(name) },
		func(m *Member) bool { return slices.Contains(m.PeerURLs, strings.TrimSuffix(name, "/")) },
	} {
		for i := range v.Members {
			if name != "" && matches(&v.Members[i]) {
				return &v.Members[i], nil
			}
		}
	}
	return nil, fmt.Errorf("%w %q: there are %s: one that has not started goes by its id or its peer URL", ErrUnknown, name, Names(v.Members))
}

// Names lists the names of members in one text.
func Names(members []Member) string {
	names := make([]string, len(members))
	for i := range members {
		names[i] = members[i].String()
	}
	return strings.Join(names, ", ")
}
