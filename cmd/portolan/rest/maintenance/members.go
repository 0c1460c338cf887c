package maintenance

import (
	"context"
	"errors"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/storage/etcd/cluster"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// MembersPath answers a GET with a MemberList, and takes a POST of a MemberRequest.
// Below it are the members, by name, id or peer URL: DELETE removes one, and a POST to
// its /promote makes a learner a voter.
const MembersPath = Path + "/members"

const (
	memberPath  = MembersPath + "/{name}"
	promotePath = memberPath + "/promote"
	// promoteWait is how long a learner may take to be in step.
	promoteWait = 20 * time.Second
)

// A MemberList is the members of the store's cluster, by name.
type MemberList struct {
	metav1.TypeMeta `json:",inline"`
	Items           []Member `json:"items"`
}

// A Member is a member of the cluster.
type Member struct {
	ID   string `json:"id"` // hexadecimal
	Name string `json:"name,omitempty"`
	// Status is leader, voter, learner, waiting (it knows no leader), unstarted,
	// unreachable, or stranger (a member of another store answers at its address).
	Status     cluster.Status `json:"status"`
	PeerURLs   []string       `json:"peerURLs"`
	ClientURLs []string       `json:"clientURLs,omitempty"`
	Version    string         `json:"version,omitempty"`
	DBBytes    int64          `json:"dbBytes,omitempty"`
	// Index is the newest entry of the log that it has applied, and Lag how many entries
	// of the leader's log it lacks.
	Index uint64 `json:"index,omitempty"`
	Lag   uint64 `json:"lag,omitempty"`
	// Error is why the member did not report its state.
	Error string `json:"error,omitempty"`
}

// A MemberRequest requests a new member.
type MemberRequest struct {
	metav1.TypeMeta `json:",inline"`
	Name            string `json:"name"`
	PeerURL         string `json:"peerURL"`
}

// A MemberChange is a completed change of a member.
type MemberChange struct {
	metav1.TypeMeta `json:",inline"`
	Member          Member `json:"member"`
	// Join is the value of --store-join with which to start an added member.
	Join     []string `json:"join,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// Members manages the members of a store that the server runs, or is a member of.
type Members interface {
	Look(context.Context) (*cluster.Membership, error)
	Add(ctx context.Context, name, peerURL string) (*cluster.Change, error)
	// Promote waits until the member is in step, or ctx ends.
	Promote(ctx context.Context, name string) (*cluster.Change, error)
	Remove(ctx context.Context, name string) (*cluster.Change, error)
}

// membership returns an endpoint that needs Members.
func (o Options) membership(answer func(w http.ResponseWriter, r *http.Request) (any, error)) rest.EndpointFunc {
	return func(w http.ResponseWriter, r *http.Request) error {
		if o.Members == nil {
			return unsupported("know the members of", leftToOwner+"etcdctl member")
		}
		value, err := answer(w, r)
		if err != nil {
			return MemberError(err)
		}
		rest.WriteJSON(w, http.StatusOK, value)
		return nil
	}
}

func (o Options) listMembers(_ http.ResponseWriter, r *http.Request) (any, error) {
	view, err := o.Members.Look(r.Context())
	if err != nil {
		return nil, err
	}
	list := MemberList{TypeMeta: typeMeta("StoreMemberList"), Items: []Member{}}
	for i := range view.Members {
		m := shape(&view.Members[i])
		m.Lag = view.Lag(&view.Members[i])
		list.Items = append(list.Items, m)
	}
	return list, nil
}

func (o Options) addMember(w http.ResponseWriter, r *http.Request) (any, error) {
	var request MemberRequest
	if err := rest.ReadJSON(w, r, &request); err != nil {
		return nil, err
	}
	return changed(o.Members.Add(r.Context(), request.Name, request.PeerURL))
}

func (o Options) promoteMember(_ http.ResponseWriter, r *http.Request) (any, error) {
	ctx, cancel := context.WithTimeout(r.Context(), promoteWait)
	defer cancel()
	return changed(o.Members.Promote(ctx, r.PathValue("name")))
}

func (o Options) removeMember(_ http.ResponseWriter, r *http.Request) (any, error) {
	return changed(o.Members.Remove(r.Context(), r.PathValue("name")))
}

func changed(c *cluster.Change, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return MemberChange{TypeMeta: typeMeta("StoreMemberChange"), Member: shape(&c.Member), Join: c.Join, Warnings: c.Warnings}, nil
}

func shape(m *cluster.Member) Member {
	out := Member{ID: cluster.FormatID(m.ID), Name: m.Name, Status: m.Status(), PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs}
	if m.Err != nil {
		out.Error = m.Err.Error()
	}
	if a := m.Answer; a != nil {
		out.Version, out.DBBytes, out.Index = a.Version, a.Size, a.Applied
	}
	return out
}

// MemberError translates an error about members for the client. An unknown error means
// that the cluster did not answer.
func MemberError(err error) error {
	var known interface{ Status() metav1.Status }
	switch {
	case errors.As(err, &known):
		return err
	case errors.Is(err, cluster.ErrUnknown):
		return refusal.NotFound(err.Error())
	case errors.Is(err, cluster.ErrRefused):
		return refusal.Invalid(err.Error())
	case errors.Is(err, cluster.ErrNotInStep): // temporary
		return refusal.New(http.StatusConflict, metav1.StatusReasonConflict, err.Error())
	}
	return refusal.Unavailable(err.Error())
}
