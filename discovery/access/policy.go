package access

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/cache"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/claim"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/host"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// objects holds the users, roles and bindings of a store by their keys.
type objects map[config.Key]*config.Config

// definesPolicy says whether policies are derived from objects of this kind.
func definesPolicy(kind config.GroupVersionKind) bool {
	return kind.Group == access.Group && (kind.Kind == schema.User.Kind || kind.Kind == schema.Role.Kind || kind.Kind == schema.RoleBinding.Kind)
}

func objectsOf(snapshot *cache.Snapshot) objects {
	out := objects{}
	for _, kind := range []config.GroupVersionKind{schema.User, schema.Role, schema.RoleBinding} {
		for object := range snapshot.List(kind, "") {
			if object.Source == "" { // objects of other sources give no rights
				out[object.Key()] = object
			}
		}
	}
	return out
}

// policy says who may do what, as of one state of the store. It is never modified.
type policy struct {
	objects objects
	root    string
	schemas schema.Set

	users  map[string]*access.User
	tokens map[[sha256.Size]byte]credential
	grants map[access.Subject][]Grant
}

type credential struct {
	user  string
	token access.Token
}

// Grant is a rule that somebody has.
type Grant struct {
	access.Rule
	// Scope is the namespace that the rule is for, empty for the whole mesh.
	Scope string
	// Role and Binding say where it comes from.
	Role, Binding string
}

// everything is the grant of an administrator.
var everything = Grant{Rule: access.Rule{Verbs: []string{access.All}, Kinds: []string{access.All}}}

func newPolicy(stored objects, root string, schemas schema.Set) *policy {
	p := &policy{
		objects: stored, root: root, schemas: schemas,
		users: map[string]*access.User{}, tokens: map[[sha256.Size]byte]credential{}, grants: map[access.Subject][]Grant{},
	}
	keys := make([]config.Key, 0, len(stored))
	for key := range stored {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b config.Key) int { return strings.Compare(a.Path(), b.Path()) })
	for _, key := range keys {
		switch spec := stored[key].Spec.(type) {
		case *access.User:
			if key.Namespace == root {
				p.addUser(key.Name, spec)
			}
		case *access.RoleBinding:
			if key.Namespace == "" {
				continue // no store has one, and an empty scope is the whole mesh
			}
			grants, _ := p.granted(key, spec)
			for _, subject := range spec.Subjects {
				p.grants[subject] = append(p.grants[subject], grants...)
			}
		}
	}
	return p
}

func (p *policy) addUser(name string, u *access.User) {
	p.users[name] = u
	for _, t := range u.Tokens {
		if len(t.Hash) == sha256.Size {
			p.tokens[[sha256.Size]byte(t.Hash)] = credential{name, t}
		}
	}
}

// granted returns the grants that a binding gives, or false if its role does not exist.
func (p *policy) granted(key config.Key, b *access.RoleBinding) ([]Grant, bool) {
	scope := p.scope(key.Namespace)
	rules, own, ok := p.role(b.Role, key.Namespace)
	if own {
		scope = key.Namespace
	}
	out := make([]Grant, len(rules))
	for i, rule := range rules {
		out[i] = Grant{Rule: rule, Scope: scope, Role: b.Role, Binding: key.Namespace + "/" + key.Name}
	}
	return out, ok
}

// scope returns the namespace for which an object in a namespace counts; empty means the whole
// mesh.
func (p *policy) scope(namespace string) string {
	if namespace == p.root {
		return ""
	}
	return namespace
}

// role finds a role by name, for a binding in a namespace. own is true if the role lives in
// that namespace and not in the root namespace.
func (p *policy) role(name, namespace string) (rules []access.Rule, own, ok bool) {
	if rules, ok := BuiltIn(name, p.schemas); ok {
		return rules, false, true
	}
	for _, place := range []string{p.root, namespace} {
		object := p.objects[config.Key{Kind: schema.Role, Namespace: place, Name: name}]
		if object == nil {
			continue
		}
		if role, ok := object.Spec.(*access.Role); ok {
			return p.normal(role.Rules), place != p.root, true
		}
	}
	return nil, false, false
}

// normal returns the rules with each kind under its plural name.
func (p *policy) normal(rules []access.Rule) []access.Rule {
	out := slices.Clone(rules)
	for i := range out {
		kinds := make([]string, len(out[i].Kinds))
		for j, kind := range out[i].Kinds {
			kinds[j] = plural(kind, p.schemas)
		}
		out[i].Kinds = kinds
	}
	return out
}

// plural returns the plural name of a kind, and any other name unchanged.
func plural(name string, schemas schema.Set) string {
	name, sub, _ := strings.Cut(name, "/")
	if kind := schemas.Named(name); kind != nil {
		name = kind.Plural
	}
	if sub != "" {
		name += "/" + sub
	}
	return name
}

// byToken finds the user of a token, or returns false if the token is not valid at now.
func (p *policy) byToken(token string, now time.Time) (credential, bool) {
	hash := access.HashOf(token)
	found, ok := p.tokens[[sha256.Size]byte(hash)]
	if !ok || subtle.ConstantTimeCompare(found.token.Hash, hash) != 1 {
		return credential{}, false
	}
	if !found.token.Expires.IsZero() && !now.Before(found.token.Expires) {
		return credential{}, false
	}
	return found, !p.disabled(found.user)
}

func (p *policy) disabled(user string) bool {
	u := p.users[user]
	return u != nil && u.Disabled
}

// groups returns the groups of a user in the store.
func (p *policy) groups(user string) []string {
	if u := p.users[user]; u != nil {
		return u.Groups
	}
	return nil
}

func (p *policy) grantsOf(who Identity) []Grant {
	if who.User == access.LocalUser {
		return []Grant{everything}
	}
	out := slices.Clone(p.grants[access.Subject{Kind: access.SubjectUser, Name: who.User}])
	seen := map[string]bool{}
	for _, group := range who.Groups {
		if !seen[group] {
			seen[group] = true
			out = append(out, p.grants[access.Subject{Kind: access.SubjectGroup, Name: group}]...)
		}
	}
	return out
}

func (p *policy) permits(who Identity, want action) bool {
	if want.open {
		return true
	}
	if who.User == access.LocalUser {
		return true
	}
	return slices.ContainsFunc(p.grantsOf(who), func(g Grant) bool { return g.permits(want) })
}

func (g Grant) permits(want action) bool {
	return has(g.Verbs, want.verb) && g.hasKind(want.kind) &&
		(g.Scope == "" || g.Scope == want.namespace) &&
		(len(g.Namespaces) == 0 || slices.Contains(g.Namespaces, want.namespace)) &&
		(len(g.Names) == 0 || slices.Contains(g.Names, want.name))
}

// A grant for a kind covers its status, too.
func (g Grant) hasKind(kind string) bool {
	whole, _, _ := strings.Cut(kind, "/")
	return has(g.Kinds, kind) || has(g.Kinds, whole)
}

func has(list []string, one string) bool {
	return slices.Contains(list, access.All) || slices.Contains(list, one)
}

// firstMissing returns the first right in grants that an identity does not have, empty if it has
// all.
func (p *policy) firstMissing(who Identity, grants []Grant) string {
	mine := p.grantsOf(who)
	for _, g := range grants {
		for _, verb := range g.Verbs {
			for _, kind := range g.Kinds {
				for _, namespace := range orAll(g.namespaces()) {
					for _, name := range orAll(g.Names) {
						want := action{verb: verb, kind: kind, namespace: namespace, name: name}
						for _, h := range orAll(g.Hosts) {
							if !slices.ContainsFunc(mine, func(g Grant) bool { return g.gives(want, h) }) {
								return want.String() + forHost(h)
							}
						}
					}
				}
			}
		}
	}
	return ""
}

// gives says whether somebody with the grant may give away a right, for a host or, if that is
// empty, without hosts. A rule that names hosts is a right to hosts of other namespaces, too:
// only who has such a rule, or the right in all namespaces, may give it.
func (g Grant) gives(want action, h string) bool {
	switch {
	case len(g.Hosts) > 0:
		return h != "" && g.permits(want) && claim.Covers(g.Hosts, host.Name(h))
	case h != "":
		want.namespace = ""
	}
	return g.permits(want)
}

// forHost says for which host a right is, if it is for one.
func forHost(h string) string {
	if h == "" {
		return ""
	}
	return " for the host " + h
}

// HoldsIn says whether the grant is for objects of a namespace.
func (g Grant) HoldsIn(namespace string) bool {
	namespaces := g.namespaces()
	return len(namespaces) == 0 || has(namespaces, namespace)
}

// namespaces returns the namespaces that a grant covers; none means all.
func (g Grant) namespaces() []string {
	switch {
	case g.Scope == "":
		return g.Namespaces
	case len(g.Namespaces) > 0 && !slices.Contains(g.Namespaces, g.Scope):
		return nil // it permits nothing; lacking then asks for more than it gives, which is safe
	}
	return []string{g.Scope}
}

func orAll(list []string) []string {
	if len(list) == 0 {
		return []string{""}
	}
	return list
}

// action is what a caller wants to do. The verb or kind access.All stands for all of them. An
// empty namespace means all namespaces, an empty name any object.
type action struct {
	verb, kind, namespace, name string
	// open is true if every authenticated caller may do it.
	open bool
}

// String describes the action in words.
func (a action) String() string {
	verb, kind := a.verb, a.kind
	if verb == access.All {
		verb = "do everything with"
	}
	if kind == access.All {
		kind = "all kinds"
	}
	text := verb + " " + kind
	if a.name != "" {
		text += fmt.Sprintf(" %q", a.name)
	}
	if a.namespace != "" {
		return text + " in namespace " + a.namespace
	}
	return text + " in all namespaces"
}
