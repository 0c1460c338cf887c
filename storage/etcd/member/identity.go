package member

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
	"go.etcd.io/etcd/server/v3/storage/schema"
	"go.uber.org/zap"

	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
)

// ErrRemoved is the error of data of a member that its cluster has removed.
var ErrRemoved = errors.New("removed from its cluster")

// ErrUsed is the error of an empty data directory for a member that has data.
var ErrUsed = errors.New("the member is not new")

// checkIdentity compares the member's identity in the data with its options. The data
// prevails.
func checkIdentity(etcd *embed.Etcd, opts Options) error {
	// Read the database, not the server, which may be about to replay its log from the
	// start.
	byID, gone := schema.NewMembershipBackend(zap.NewNop(), etcd.Server.Backend()).MustReadMembersFromBackend()
	members := slices.Collect(maps.Values(byID))
	self := byID[etcd.Server.MemberID()]
	switch c := opts.Cluster; {
	case wasRemoved(etcd.Server.MemberID(), byID, gone):
		return removed(opts)
	case self == nil: // the log entry that adds it is not applied yet
		return nil
	case c == nil && len(members) > 1:
		return fmt.Errorf("the data directory is that of member %s of a cluster of %d (%s): start it with --store-name %s --store-peer-url %s and the other flags that it was started with",
			self.Name, len(members), strings.Join(namesOf(members), ", "), self.Name, strings.Join(self.PeerURLs, ","))
	case c != nil && len(c.Initial) > 0 && !sameMembers(c.Initial, members):
		opts.Logger.Info("the members of the store are those in its data directory; the initial ones were of its first start", "members", namesOf(members))
	}
	return nil
}

// wasRemoved says whether the data records that a member was removed. Absence from the
// members is not enough: a new cluster adds its members one by one.
func wasRemoved[ID comparable](id ID, members map[ID]*membership.Member, gone map[ID]bool) bool {
	return members[id] == nil && gone[id]
}

func sameMembers(initial []Peer, members []*membership.Member) bool {
	var urls, now []string
	for _, p := range initial {
		urls = append(urls, p.URL)
	}
	for _, m := range members {
		now = append(now, m.PeerURLs...)
	}
	slices.Sort(urls)
	slices.Sort(now)
	return slices.Equal(urls, now)
}

func namesOf(members []*membership.Member) []string {
	var out []string
	for _, m := range members {
		name := m.Name
		if name == "" {
			name = m.ID.String()
		}
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}

// compareData returns an error if the member's data differs from the data of the
// others: a disk has changed it.
func compareData(etcd *embed.Etcd, opts Options) error {
	err := etcd.Server.CorruptionChecker().InitialCheck()
	switch {
	case err == nil:
		return nil
	case strings.Contains(err.Error(), "found data inconsistency with peers"):
		return opts.Cluster.replaceable(fmt.Errorf("%w: it differs from that of the other members: %w", ErrDamaged, err))
	}
	opts.Logger.Info("the data of the member was not compared with that of the others", "err", err)
	return nil
}

// removed is the error of a member that its cluster has removed.
func removed(opts Options) error {
	advice := "start the server on an empty directory"
	if c := opts.Cluster; c != nil {
		advice = fmt.Sprintf("to have it in the cluster again, run this against another server of it, and start this one on an empty directory with --store-join: %s", c.addCommand())
	}
	return fmt.Errorf("%w: the data directory %s is of a member that was removed, and is of no more use: %s", ErrRemoved, opts.DataDir, advice)
}

// removedElsewhere asks the other members whether this one still belongs to the
// cluster: a member that was away when it was removed does not know.
func removedElsewhere(ctx context.Context, etcd *embed.Etcd, opts Options) error {
	others := clientURLs(etcd)
	if opts.Cluster == nil || len(others) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	roster := cluster.New(opts.Cluster.dialer(opts.Logger), others...)
	defer roster.Close()
	view, err := roster.Look(ctx)
	if err != nil || slices.ContainsFunc(view.Members, func(m cluster.Member) bool { return m.ID == uint64(etcd.Server.MemberID()) }) {
		return nil
	}
	return removed(opts)
}

// clientURLs returns the client URLs of the other members.
func clientURLs(etcd *embed.Etcd) []string {
	var out []string
	for _, m := range etcd.Server.Cluster().Members() {
		if m.ID != etcd.Server.MemberID() {
			out = append(out, m.ClientURLs...)
		}
	}
	return out
}

// settle tells the cluster the peer URL of this member if it has changed: the member
// moved, or it was a cluster of one without an address.
func (m *Member) settle(ctx context.Context, c *Cluster, logger *slog.Logger) error {
	if c == nil {
		return nil
	}
	self := m.etcd.Server.Cluster().Member(m.etcd.Server.MemberID())
	if self == nil || slices.Equal(self.PeerURLs, []string{c.PeerURL}) {
		return nil
	}
	if _, err := m.client.MemberUpdate(ctx, uint64(self.ID), []string{c.PeerURL}); err != nil {
		return fmt.Errorf("tell the cluster that the member is at %s and not at %s: %w", c.PeerURL, strings.Join(self.PeerURLs, ","), err)
	}
	logger.Info("the peer URL of the member has changed", "name", c.Name, "was", self.PeerURLs, "is", c.PeerURL)
	return nil
}
