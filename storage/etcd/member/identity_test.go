package member_test

import (
	"testing"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"

	"github.com/portolan-mesh/portolan/storage/etcd/member"
)

// TestAMemberThatIsYetToBeAddedWasNotRemoved: a new cluster adds its members one by one,
// so a member that looks meanwhile may see others and not itself.
func TestAMemberThatIsYetToBeAddedWasNotRemoved(t *testing.T) {
	t.Parallel()
	const self, other = 1, 2
	at := func(ids ...int) map[int]*membership.Member {
		out := map[int]*membership.Member{}
		for _, id := range ids {
			out[id] = &membership.Member{}
		}
		return out
	}
	for _, test := range []struct {
		name    string
		members map[int]*membership.Member
		gone    map[int]bool
		want    bool
	}{
		{"nothing is applied", at(), nil, false},
		{"another one is added", at(other), nil, false},
		{"it is added", at(self, other), nil, false},
		{"it is removed", at(other), map[int]bool{self: true}, true},
	} {
		if got := member.WasRemoved(self, test.members, test.gone); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}
