package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// answerWait is how long a member may take to answer.
const answerWait = 2 * time.Second

// A Roster keeps track of the members of a cluster. Its methods may be called by several
// goroutines.
type Roster struct {
	dial func(endpoint string) (*clientv3.Client, error)

	mu sync.Mutex // guards what follows
	// endpoints are the URLs to ask while no member is known.
	endpoints []string
	members   []Member                    // as last listed, by name
	conns     map[string]*clientv3.Client // by endpoint
}

// New returns a Roster of the cluster that some endpoints belong to. dial makes a client
// of one endpoint, which the Roster closes. New asks no member yet.
func New(dial func(endpoint string) (*clientv3.Client, error), endpoints ...string) *Roster {
	return &Roster{dial: dial, endpoints: endpoints, conns: map[string]*clientv3.Client{}}
}

// Learn adds endpoints to ask as long as no member is known.
func (r *Roster) Learn(endpoints ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range endpoints {
		if !slices.Contains(r.endpoints, e) {
			r.endpoints = append(r.endpoints, e)
		}
	}
}

// Close closes the connections.
func (r *Roster) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for endpoint, c := range r.conns {
		_ = c.Close() // the error is the end of its own context
		delete(r.conns, endpoint)
	}
	return nil
}

// Look asks all members for their status and for the list of members. It takes a few
// milliseconds if all answer, and about 4 s if some do not. It fails only if no member
// has ever answered.
func (r *Roster) Look(ctx context.Context) (*Membership, error) {
	r.mu.Lock()
	known, endpoints := slices.Clone(r.members), slices.Clone(r.endpoints)
	r.mu.Unlock()
	var listed []Member
	var err error
	if len(known) == 0 {
		if listed, err = r.listFrom(ctx, endpoints, false); err != nil {
			return nil, err
		}
		known = listed
	}
	r.ask(ctx, known)
	if listed == nil {
		if listed, err = r.list(ctx, known); err == nil {
			known = r.join(ctx, listed, known)
		}
	}
	r.setMembers(known)
	return &Membership{Members: known}, nil
}

// list returns the current members, from a member that serves; or, if none does, as
// another voter knows them.
func (r *Roster) list(ctx context.Context, members []Member) ([]Member, error) {
	var serving, others []string
	for i := range members {
		switch m := &members[i]; {
		case m.serves():
			serving = append(serving, m.ClientURLs[0])
		case m.Answer != nil && !m.Learner:
			others = append(others, m.ClientURLs[0])
		}
	}
	if listed, err := r.listFrom(ctx, serving, false); err == nil {
		return listed, nil
	}
	return r.listFrom(ctx, append(others, serving...), true)
}

// listFrom asks the endpoints for the members, one after the other, until one answers.
func (r *Roster) listFrom(ctx context.Context, endpoints []string, serializable bool) ([]Member, error) {
	var opts []clientv3.OpOption
	if serializable {
		opts = append(opts, clientv3.WithSerializable())
	}
	errs := []error{}
	for _, endpoint := range endpoints {
		answer, err := callAt(ctx, r, endpoint, func(ctx context.Context, c *clientv3.Client) (*clientv3.MemberListResponse, error) {
			return c.MemberList(ctx, opts...)
		})
		if err == nil {
			return membersOf(answer), nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", endpoint, err))
	}
	return nil, fmt.Errorf("no member of the store's cluster answers: %w", errors.Join(errs...))
}

func membersOf(answer *clientv3.MemberListResponse) []Member {
	var out []Member
	for _, m := range answer.Members {
		out = append(out, Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs, Learner: m.IsLearner})
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID)) })
	return out
}

// join copies the answers of asked members to the listed ones, and asks the members that
// are new in the list.
func (r *Roster) join(ctx context.Context, listed, asked []Member) []Member {
	var fresh []int
	for i := range listed {
		j := slices.IndexFunc(asked, func(m Member) bool {
			return m.ID == listed[i].ID && slices.Equal(m.ClientURLs, listed[i].ClientURLs)
		})
		if j < 0 {
			fresh = append(fresh, i)
			continue
		}
		listed[i].Answer, listed[i].Err = asked[j].Answer, asked[j].Err
	}
	rest := make([]Member, len(fresh))
	for k, i := range fresh {
		rest[k] = listed[i]
	}
	r.ask(ctx, rest)
	for k, i := range fresh {
		listed[i] = rest[k]
	}
	return listed
}

// ask asks all members for their status at once.
func (r *Roster) ask(ctx context.Context, members []Member) {
	var asking sync.WaitGroup
	for i := range members {
		m := &members[i]
		if len(m.ClientURLs) == 0 {
			m.Answer, m.Err = nil, errors.New("it has not started yet")
			continue
		}
		asking.Go(func() { m.Answer, m.Err = r.askOne(ctx, m) })
	}
	asking.Wait()
}

// askOne asks one member; a member that waits for others answers too. What answers at its
// address and is of another store is a StrangerError.
func (r *Roster) askOne(ctx context.Context, m *Member) (*Answer, error) {
	s, err := callAt(ctx, r, m.ClientURLs[0], func(ctx context.Context, c *clientv3.Client) (*pb.StatusResponse, error) {
		return pb.NewMaintenanceClient(c.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
	})
	if err == nil {
		err = r.stranger(ctx, m, s)
	} else {
		err = strangersCertificate(ctx, m.ClientURLs[0], err)
	}
	if err != nil {
		return nil, err
	}
	return &Answer{
		Leader: s.Leader, Size: s.DbSize, InUse: s.DbSizeInUse, Quota: s.DbSizeQuota,
		Committed: s.RaftIndex, Applied: s.RaftAppliedIndex, Version: s.Version,
	}, nil
}

// callAt calls one member, within answerWait.
func callAt[T any](ctx context.Context, r *Roster, endpoint string, call func(context.Context, *clientv3.Client) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	var answer T
	c, err := r.conn(endpoint)
	if err == nil {
		answer, err = call(ctx, c)
	}
	return answer, plain(err)
}

func (r *Roster) conn(endpoint string) (*clientv3.Client, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c, ok := r.conns[endpoint]; ok {
		return c, nil
	}
	c, err := r.dial(endpoint)
	if err != nil {
		return nil, err
	}
	r.conns[endpoint] = c
	return c, nil
}

// setMembers remembers the members, and closes connections to former ones.
func (r *Roster) setMembers(members []Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members = slices.Clone(members)
	for endpoint, c := range r.conns {
		if !slices.ContainsFunc(members, func(m Member) bool { return slices.Contains(m.ClientURLs, endpoint) }) {
			_ = c.Close() // the error is the end of its own context
			delete(r.conns, endpoint)
		}
	}
}

// plain returns an error of gRPC without the words that only programmers read.
func plain(err error) error {
	if err == nil {
		return nil
	}
	s, ok := status.FromError(err)
	switch {
	case errors.Is(err, context.DeadlineExceeded), ok && s.Code() == codes.DeadlineExceeded:
		return errors.New("it does not answer")
	case !ok:
		return err
	}
	words := s.Message()
	for _, prefix := range []string{"connection error: ", "desc = ", `"transport: `, "Error while dialing: ", "authentication handshake failed: "} {
		words = strings.TrimPrefix(words, prefix)
	}
	return &callError{words: strings.TrimSuffix(words, `"`), err: err}
}

// A callError is an error of etcd in fewer words.
type callError struct {
	words string
	err   error
}

// Error implements error.
func (e *callError) Error() string { return e.words }

// Unwrap returns the error in etcd's words.
func (e *callError) Unwrap() error { return e.err }
