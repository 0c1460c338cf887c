package maintenance_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/maintenance"
	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
)

// crew are members that answer from their fields, and record which members they were
// asked about.
type crew struct {
	view  cluster.Membership
	err   error
	asked []string
}

func (c *crew) Look(context.Context) (*cluster.Membership, error) { return &c.view, c.err }

func (c *crew) Add(_ context.Context, name, peerURL string) (*cluster.Change, error) {
	return c.change("add " + name + " " + peerURL)
}

func (c *crew) Promote(_ context.Context, name string) (*cluster.Change, error) {
	return c.change("promote " + name)
}

func (c *crew) Remove(_ context.Context, name string) (*cluster.Change, error) {
	return c.change("remove " + name)
}

func (c *crew) change(what string) (*cluster.Change, error) {
	c.asked = append(c.asked, what)
	if c.err != nil {
		return nil, c.err
	}
	return &cluster.Change{Member: c.view.Members[1], Join: []string{"https://a"}, Warnings: []string{"careful"}}, nil
}

func TestMembers(t *testing.T) {
	t.Parallel()
	fake := &crew{view: cluster.Membership{Members: []cluster.Member{
		{ID: 1, Name: "cp-1", Answer: &cluster.Answer{Leader: 1, Committed: 9, Applied: 9, Size: 5, Version: "3"}},
		{ID: 0xab, Name: "cp-2", Learner: true, Answer: &cluster.Answer{Leader: 1, Applied: 7}},
		{ID: 3, Name: "cp-3", Err: errors.New("it is away")},
	}}}
	_, c := start(t, maintenance.Options{Members: fake}, nil)
	list, err := c.StoreMembers(t.Context())
	if err != nil || list.Kind != "StoreMemberList" || len(list.Items) != 3 {
		t.Fatalf("%+v, %v", list, err)
	}
	if m := list.Items[0]; m.Status != cluster.Leader || m.DBBytes != 5 || m.Index != 9 || m.Lag != 0 {
		t.Errorf("the leader: %+v", m)
	}
	if m := list.Items[1]; m.Status != cluster.Learner || m.ID != "ab" || m.Lag != 2 {
		t.Errorf("the learner: %+v", m)
	}
	if m := list.Items[2]; m.Status != cluster.Unreachable || m.Error != "it is away" {
		t.Errorf("the one that is away: %+v", m)
	}

	change, err := c.AddStoreMember(t.Context(), "cp-2", "https://b:1")
	if err != nil || change.Member.ID != "ab" || change.Join[0] != "https://a" || change.Warnings[0] != "careful" {
		t.Errorf("add: %+v, %v", change, err)
	}
	if _, err := c.PromoteStoreMember(t.Context(), "https://b:1"); err != nil {
		t.Error(err)
	}
	if _, err := c.RemoveStoreMember(t.Context(), "cp 2"); err != nil {
		t.Error(err)
	}
	if got, want := strings.Join(fake.asked, ", "), "add cp-2 https://b:1, promote https://b:1, remove cp 2"; got != want {
		t.Errorf("asked for %s, want %s", got, want)
	}
}

func TestMemberErrors(t *testing.T) {
	t.Parallel()
	fake := &crew{}
	s, c := start(t, maintenance.Options{Members: fake}, nil)
	for _, test := range []struct {
		err error
		is  func(error) bool
	}{
		{fmt.Errorf("x: %w", cluster.ErrUnknown), apierrors.IsNotFound},
		{fmt.Errorf("x: %w", cluster.ErrRefused), apierrors.IsInvalid},
		{fmt.Errorf("x: %w", cluster.ErrNotInStep), apierrors.IsConflict},
		{errors.New("no quorum"), apierrors.IsServiceUnavailable},
	} {
		fake.err = test.err
		if _, err := c.RemoveStoreMember(t.Context(), "cp-1"); !test.is(err) || !strings.Contains(err.Error(), test.err.Error()) {
			t.Errorf("%v became %v", test.err, err)
		}
	}
	if _, err := c.StoreMembers(t.Context()); !apierrors.IsServiceUnavailable(err) {
		t.Errorf("list: %v", err)
	}
	if a := s.Local().Do(t, http.MethodPost, maintenance.MembersPath, `{"nam":"x"}`); a.Code != http.StatusBadRequest {
		t.Errorf("a field that there is not: %+v", a)
	}
	if a := s.Local().Do(t, http.MethodPut, maintenance.MembersPath+"/cp-1", "{}"); a.Code != http.StatusMethodNotAllowed {
		t.Errorf("PUT: %+v", a)
	}
	_, c = start(t, maintenance.Options{}, nil)
	if _, err := c.StoreMembers(t.Context()); !apierrors.IsMethodNotSupported(err) || !strings.Contains(err.Error(), "etcdctl member") {
		t.Errorf("of a store of others: %v", err)
	}
}
