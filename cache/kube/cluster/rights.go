package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// User is who uses a connection, for what Degraded says of missing rights. The zero User is nobody
// in particular.
type User struct {
	// Source is the name of the source that the user is, for portolan source describe.
	Source string
	// Page is the page of the documentation with the role that the account needs.
	Page string
}

// selectorsPage is the page with the right to Namespaces, which discoverySelectors need.
const selectorsPage = "docs/operations/mesh-config.md"

// allNamespaces is the Where of a right that is in none.
const allNamespaces = "in all namespaces"

// Lack is a right that the account of a kubeconfig lacks. It is an ErrDenied.
type Lack struct {
	// Verb and Resource are such as "list" and "gateways.networking.istio.io".
	Verb, Resource string
	// Where says in which namespaces, or for what.
	Where string
	// Namespace is the one of Where; empty for all.
	Namespace string
	// Account is the name that the cluster has for the account; empty if it does not say it.
	Account string
	// Page is the page of the documentation with the role; empty for none.
	Page string
}

// Is implements what errors.Is asks for.
func (l *Lack) Is(target error) bool { return target == ErrDenied }

// Error says the whole right.
func (l *Lack) Error() string { return l.say(l.Verb) }

// say is Error with some verbs.
func (l *Lack) say(verbs string) string {
	text := fmt.Sprintf("%s may not %s %s %s", accountOf(l.Account), verbs, l.Resource, l.Where)
	if l.Verb == "list" || l.Verb == "watch" {
		text += ": grant it the verbs list and watch"
	} else {
		text += ": grant it the verb " + l.Verb
	}
	if l.Page != "" {
		text += " (see " + l.Page + ")"
	}
	return text
}

// name is the resource in a list.
func (l *Lack) name() string {
	if l.Namespace != "" {
		return l.Resource + " in the namespace " + l.Namespace
	}
	return l.Resource
}

// Lacking returns the right to a verb in all namespaces that the user lacks if the cluster refused a
// call with err; else err.
func (c *Cluster) Lacking(verb, resource string, err error) error {
	if !apierrors.IsForbidden(err) {
		return err
	}
	return &Lack{Verb: verb, Resource: resource, Where: allNamespaces, Account: userIn(err), Page: c.by.Page}
}

func accountOf(name string) string {
	if name == "" {
		return "the account"
	}
	return "the account " + name
}

// quotedUser finds the account in the message of a refusal, where Kubernetes quotes it.
var quotedUser = regexp.MustCompile(`\b[Uu]ser ("(?:[^"\\]|\\.)*")`)

// userIn returns the account that a refusal names, empty for none.
func userIn(err error) string {
	found := quotedUser.FindStringSubmatch(err.Error())
	if found == nil {
		return ""
	}
	name, err := strconv.Unquote(found[1])
	if err != nil || len(name) > 253 {
		return ""
	}
	return name
}

// Denied is all rights that an account lacks. Error sums them up, and the function Details
// says them all.
type Denied struct {
	by   User
	lack []lacks
}

// lacks are what is missing of one resource, since a time. All are of one account.
type lacks struct {
	since time.Time
	of    []*Lack // list before watch
}

// verbs returns what the account may not do.
func (l lacks) verbs() string {
	var all []string
	for _, one := range l.of {
		all = append(all, one.Verb)
	}
	return strings.Join(all, " and ")
}

// shownResources is how many resources the sum of a Denied names.
const shownResources = 2

// Is implements what errors.Is asks for.
func (d *Denied) Is(target error) bool { return target == ErrDenied }

// Error sums the rights up, with the earliest time.
func (d *Denied) Error() string {
	since := d.lack[0].since
	groups, of := []string{}, map[string][]*Lack{} // by account and verbs
	for _, l := range d.lack {
		if l.since.Before(since) {
			since = l.since
		}
		group := accountOf(l.of[0].Account) + " may not " + l.verbs()
		if of[group] == nil {
			groups = append(groups, group)
		}
		of[group] = append(of[group], l.of[0])
	}
	for i, group := range groups {
		groups[i] = group + " " + summary(of[group])
	}
	text := fmt.Sprintf("since %s: %s", since.UTC().Format(time.RFC3339), strings.Join(groups, ", and "))
	var see []string
	if page := d.lack[0].of[0].Page; page != "" {
		see = append(see, page)
	}
	if d.by.Source != "" {
		see = append(see, "portolan source describe "+d.by.Source)
	}
	if len(see) > 0 {
		text += ": see " + strings.Join(see, " or ")
	}
	return text
}

// summary names resources, a few of many.
func summary(all []*Lack) string {
	if len(all) == 1 {
		return all[0].Resource + " " + all[0].Where
	}
	var names []string
	for _, l := range all[:min(len(all), shownResources)] {
		names = append(names, l.name())
	}
	if len(all) == len(names) {
		return strings.Join(names, " and ")
	}
	return fmt.Sprintf("%d resources: %s, ...", len(all), strings.Join(names, ", "))
}

// details returns a line for each resource, by their names.
func (d *Denied) details() []string {
	var out []string
	for _, l := range d.lack {
		out = append(out, fmt.Sprintf("since %s: %s", l.since.UTC().Format(time.RFC3339), l.of[0].say(l.verbs())))
	}
	return out
}

// Details returns what an error of Degraded says in full, one text a reason, with a line for each right
// that is missing. It returns nil if the error sums nothing up.
func Details(err error) []string {
	var denied *Denied
	if !errors.As(err, &denied) {
		return nil
	}
	many := (*multierror.Error)(nil)
	if !errors.As(err, &many) {
		return denied.details()
	}
	var out []string
	for _, one := range many.Errors {
		if details := Details(one); details != nil {
			out = append(out, details...)
		} else {
			out = append(out, one.Error())
		}
	}
	return out
}

// denial returns what the account lacks of the resource, and any other reason for which it may be
// old. Each is empty for none.
func (s *state) denial() (lack lacks, other error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lack.since = s.since
	for _, verb := range []string{"list", "watch"} {
		switch err := s.denied[verb]; of := err.(type) {
		case nil:
		case *Lack:
			lack.of = append(lack.of, of)
		default:
			if other == nil {
				other = err
			}
		}
	}
	if len(lack.of) == 0 && other == nil && !s.listed {
		other = ErrUnanswered
	}
	return lack, other
}

// deniedBy returns what a user lacks, nil for nothing.
func deniedBy(by User, all []lacks) error {
	all = slices.DeleteFunc(all, func(l lacks) bool { return len(l.of) == 0 })
	if len(all) == 0 {
		return nil
	}
	rank := func(l *Lack) int { // those for discoverySelectors come last
		if l.Page == by.Page {
			return 0
		}
		return 1
	}
	slices.SortFunc(all, func(a, b lacks) int {
		x, y := a.of[0], b.of[0]
		return cmp.Or(rank(x)-rank(y), strings.Compare(x.Resource, y.Resource), strings.Compare(x.Namespace, y.Namespace))
	})
	return &Denied{by, all}
}
