package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/errlist"
)

// The reasons for which a resource is not followed although the cluster is not away.
var (
	// ErrDenied says that the account lacks a right.
	ErrDenied = errors.New("denied")
	// ErrAbsent says that the cluster does not have the resource.
	ErrAbsent = errors.New("absent")
	// ErrUnusable says that there is no kubeconfig that can be used, so that nobody need wait.
	ErrUnusable = errors.New("unusable")
)

// reason is an error for people that is one of these.
type reason struct {
	is   error
	text string
}

func (r *reason) Error() string        { return r.text }
func (r *reason) Is(target error) bool { return target == r.is }

// state is what is known of one resource that is followed.
type state struct {
	user   *Cluster
	link   *link
	target *target
	tell   func(error) // may be nil

	mu      sync.Mutex // guards the fields below
	listed  bool
	objects int
	// denied says why the resource is not followed, by verb. since is since when one of
	// them has a reason.
	denied map[string]error
	since  time.Time
	faults map[types.NamespacedName]*cache.Problem
}

// ErrUnanswered is the state of a resource before the first answer.
var ErrUnanswered = errors.New("the cluster has not answered yet")

func (c *Cluster) begin(t *target, tell func(error)) *state {
	s := &state{user: c, link: c.link, target: t, tell: tell, denied: map[string]error{}, since: c.link.o.Now(), faults: map[types.NamespacedName]*cache.Problem{}}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.states = append(c.states, s)
	return s
}

func (c *Cluster) end(s *state) {
	c.mu.Lock()
	c.states = slices.DeleteFunc(c.states, func(o *state) bool { return o == s })
	c.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, err := range s.denied {
		s.link.takeBack(err)
	}
	clear(s.denied)
}

// lost notes why a request failed.
func (s *state) lost(ctx context.Context, verb string, err error) {
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return // it was ended
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	err = s.target.explain(verb, err, s.user.by.Page)
	s.mu.Lock()
	was := s.denied[verb]
	if was != nil && was.Error() == err.Error() {
		s.mu.Unlock()
		return
	}
	if len(s.denied) == 0 && s.listed {
		s.since = s.link.o.Now()
	}
	s.denied[verb] = err
	s.mu.Unlock()
	s.link.setLost(err, s.target.resource.Resource)
	if was != nil {
		s.link.takeBack(was) // never the last: the new reason counts already
	}
	if s.tell != nil {
		s.tell(err)
	}
}

// answered notes that a request was answered. A watch begins only after a list.
func (s *state) answered(verb string) {
	var over []error
	s.mu.Lock()
	for _, of := range []string{"list", "watch"} {
		if err := s.denied[of]; err != nil && (of == verb || verb == "watch") {
			delete(s.denied, of)
			over = append(over, err)
		}
	}
	followed := len(s.denied) == 0
	s.mu.Unlock()
	for _, err := range over {
		s.link.setFound(err)
	}
	if len(over) > 0 && followed && s.tell != nil {
		s.tell(nil)
	}
}

// setLost counts and logs a reason.
func (l *link) setLost(err error, resource string) {
	l.mu.Lock()
	l.lost[err.Error()]++
	first := l.lost[err.Error()] == 1
	l.mu.Unlock()
	switch {
	case !first:
	case errors.Is(err, ErrAbsent):
		l.o.Log.Info("a cluster no longer has a resource, or does not have it yet", "cluster", l.name, "resource", resource, "err", err)
	default:
		l.o.Log.Warn("a cluster cannot be followed: what is known of it is kept", "cluster", l.name, "resource", resource, "err", err)
	}
}

// setFound takes a reason back, and logs the end of the last one.
func (l *link) setFound(err error) {
	defer l.wake()
	if l.takeBack(err) && !errors.Is(err, ErrAbsent) {
		l.o.Log.Info("a cluster is followed again", "cluster", l.name)
	}
}

// wake ends the waits of all resources: the cluster answers.
func (l *link) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.found)
	l.found = make(chan struct{})
}

// takeBack takes a reason back, and says whether it was the last.
func (l *link) takeBack(err error) (last bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost[err.Error()]--
	if l.lost[err.Error()] <= 0 {
		delete(l.lost, err.Error())
	}
	return len(l.lost) == 0
}

// explain says what an error means for the user, whose rights a page shows. It leaves URLs out, so
// that the reasons of all resources are one if the cluster is away.
func (t *target) explain(verb string, err error, page string) error {
	resource := t.resource.GroupResource().String()
	where := allNamespaces
	switch {
	case t.namespace != "":
		where = "in the namespace " + t.namespace
	case t.resource == namespacesResource:
		where, page = "for the discoverySelectors of the mesh", selectorsPage
	}
	var inURL *url.Error
	switch {
	case apierrors.IsForbidden(err):
		return &Lack{Verb: verb, Resource: resource, Where: where, Namespace: t.namespace, Account: userIn(err), Page: page}
	case apierrors.IsUnauthorized(err):
		return errors.New("the cluster does not accept the credentials of the kubeconfig: renew them")
	case apierrors.IsNotFound(err):
		return &reason{ErrAbsent, fmt.Sprintf("the cluster does not have %s in version %s", resource, t.resource.Version)}
	case errors.As(err, &inURL):
		return inURL.Err
	}
	return err
}

func (s *state) setListed(objects int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed, s.objects = true, objects
}

func (s *state) setObjects(objects int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects = objects
}

// faulty returns the names of the objects with a fault.
func (s *state) faulty() map[types.NamespacedName]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make(map[types.NamespacedName]bool, len(s.faults))
	for name := range s.faults {
		out[name] = true
	}
	return out
}

func (s *state) setFault(of *metav1.ObjectMeta, err error, serving bool) {
	name := types.NamespacedName{Namespace: of.Namespace, Name: of.Name}
	key := config.Key{Kind: config.GroupVersionKind{Kind: s.target.kind}, Namespace: name.Namespace, Name: name.Name}
	p := &cache.Problem{Where: "cluster " + s.link.name, Object: key.String(), Message: err.Error(), Since: s.link.o.Now(), Serving: serving, UID: string(of.UID), Generation: of.Generation}
	s.mu.Lock()
	old := s.faults[name]
	if old != nil {
		p.Since = old.Since
	}
	s.faults[name] = p
	s.mu.Unlock()
	if (old == nil || old.Message != p.Message) && s.user.counts(name.Namespace) {
		cache.LogProblems(s.link.o.Log, []cache.Problem{*p}, nil)
	}
}

func (s *state) clearFault(name types.NamespacedName) {
	s.mu.Lock()
	old := s.faults[name]
	delete(s.faults, name)
	s.mu.Unlock()
	if old != nil {
		cache.LogProblems(s.link.o.Log, nil, []cache.Problem{*old})
	}
}

// degraded says why the resource may be old; nil if it is not.
func (s *state) degraded() (since time.Time, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err = cmp.Or(s.denied["list"], s.denied["watch"])
	if err == nil && !s.listed {
		err = ErrUnanswered
	}
	return s.since, err
}

// all returns the states, and last that of the Namespaces, if the user goes by the Selection.
func (c *Cluster) all() []*state {
	c.mu.Lock()
	out, selects := slices.Clone(c.states), c.selects
	c.mu.Unlock()
	if selects {
		out = append(out, c.link.namespaces.of.all()...)
	}
	return out
}

// counts says whether what is in a namespace counts for the user.
func (c *Cluster) counts(namespace string) bool {
	c.mu.Lock()
	selects := c.selects
	c.mu.Unlock()
	return !selects || c.link.namespaces.counts(namespace)
}

// Problems returns the problems of objects in namespaces that count, in the order of their names.
func (c *Cluster) Problems() []cache.Problem {
	var out []cache.Problem
	for _, s := range c.all() {
		s.mu.Lock()
		faults := maps.Clone(s.faults)
		s.mu.Unlock()
		for name, p := range faults {
			if c.counts(name.Namespace) {
				out = append(out, *p)
			}
		}
	}
	slices.SortFunc(out, func(a, b cache.Problem) int { return strings.Compare(a.Object, b.Object) })
	return out
}

// Degraded says why what was delivered may be old, nil if it is not: each reason once,
// with its time, and last a Denied. Faults of objects do not count: Problems has them.
func (c *Cluster) Degraded() error {
	var reasons *multierror.Error
	c.link.mu.Lock()
	fault := c.link.fault
	c.link.mu.Unlock()
	if fault != nil {
		reasons = multierror.Append(reasons, fmt.Errorf("%w; the last good kubeconfig is used", fault))
	}
	said := map[string]bool{}
	var denied []lacks
	for _, s := range c.all() {
		lack, err := s.denial()
		denied = append(denied, lack)
		if err != nil && !said[err.Error()] {
			said[err.Error()] = true
			reasons = multierror.Append(reasons, fmt.Errorf("since %s: %w", lack.since.UTC().Format(time.RFC3339), err))
		}
	}
	if err := deniedBy(c.by, denied); err != nil {
		reasons = multierror.Append(reasons, err)
	}
	if reasons != nil {
		reasons.ErrorFormat = errlist.OneLine
	}
	return reasons.ErrorOrNil()
}

// Followed says whether each resource is followed: what was delivered is then what the cluster has, even if
// the kubeconfig in use is one that should have been replaced.
func (c *Cluster) Followed() bool { return c.LostSince().IsZero() }

// LostSince returns since when the first of the resources that are not followed is not; zero if each is.
func (c *Cluster) LostSince() (first time.Time) {
	for _, s := range c.all() {
		if since, err := s.degraded(); err != nil && (first.IsZero() || since.Before(first)) {
			first = since
		}
	}
	return first
}

// Synced says whether every resource being followed was listed once.
func (c *Cluster) Synced() bool {
	for _, s := range c.all() {
		s.mu.Lock()
		listed := s.listed
		s.mu.Unlock()
		if !listed {
			return false
		}
	}
	return true
}

// Status is the state of one resource that is followed.
type Status struct {
	// Resource is its name and group, such as "services" or "gateways.networking.istio.io".
	Resource, Namespace string
	// Objects is the number of objects delivered, Broken of those with a fault.
	Objects, Broken int
	// Listed says that there was a list.
	Listed bool
	// Degraded says why the objects may be old, since Since; nil if they are not.
	Degraded error
	Since    time.Time
}

// Status returns the states of the resources being followed, in the order of Follow.
func (c *Cluster) Status() []Status {
	var out []Status
	for _, s := range c.all() {
		since, err := s.degraded()
		s.mu.Lock()
		one := Status{
			Resource: s.target.resource.GroupResource().String(), Namespace: s.target.namespace,
			Objects: s.objects, Broken: len(s.faults), Listed: s.listed, Degraded: err,
		}
		s.mu.Unlock()
		if err != nil {
			one.Since = since
		}
		out = append(out, one)
	}
	return out
}
