package access

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cache/rest"
	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	// UsersPath takes a POST of a NewUser, and answers with a UserToken.
	UsersPath = ours + "users"
	// TokensPath takes a POST of a NewToken for a user, and answers with a UserToken.
	TokensPath = UsersPath + "/{name}/tokens"
	// TokenPath takes a DELETE, which revokes the token with that id.
	TokenPath = TokensPath + "/{id}"

	// TokenPrefix starts every token of a user.
	TokenPrefix = "put_"
	// DefaultTTL is how long a token is valid if the caller gives no time.
	DefaultTTL = 90 * 24 * time.Hour
	// maxTokens is how many tokens a user may have.
	maxTokens = 100
)

// NewUser asks for a user, a token, and bindings of roles to the user.
type NewUser struct {
	Name   string    `json:"name"`
	Groups []string  `json:"groups,omitempty"`
	Roles  []NewRole `json:"roles,omitempty"`
	Token  *NewToken `json:"token,omitempty"` // nil makes no token
}

// NewRole names a role and the namespace to bind it in, empty for the whole mesh.
type NewRole struct {
	Role      string `json:"role"`
	Namespace string `json:"namespace,omitempty"`
}

// NewToken asks for a token. TTL is in seconds; 0 means that the token does not expire.
type NewToken struct {
	Note string `json:"note,omitempty"`
	TTL  int64  `json:"ttl,omitempty"`
}

// UserToken is a newly made token. Nobody can read it again.
type UserToken struct {
	metav1.TypeMeta `json:",inline"`
	User            string    `json:"user"`
	Namespace       string    `json:"namespace"`
	ID              string    `json:"id,omitempty"`
	Token           string    `json:"token,omitempty"`
	Expires         time.Time `json:"expires,omitzero"`
}

// Store is where Register's paths write users.
type Store interface {
	storage.ConfigStore
	storage.Batcher
}

// paths serves the paths that Register adds.
type paths struct {
	keeper *Keeper
	store  Store
	api    *rest.Server
}

// Register adds the paths of users and tokens, and those that answer what a caller may do, to
// a config API that does not serve yet.
func Register(api *rest.Server, k *Keeper, store Store) {
	p := &paths{k, store, api}
	api.Endpoint("POST "+UsersPath, p.create)
	api.Endpoint("POST "+TokensPath, p.addToken)
	api.Endpoint("DELETE "+TokenPath, p.revoke)
	p.reviews(api)
}

// tokenOf makes a token, and the record of it that is stored.
func (p *paths) tokenOf(n NewToken) (string, access.Token, error) {
	if n.TTL < 0 || n.TTL > int64((100*365*24*time.Hour)/time.Second) {
		return "", access.Token{}, invalid("ttl", "is %d: give seconds, or 0 for a token without an end", n.TTL)
	}
	now := p.keeper.o.Now().UTC().Truncate(time.Second)
	text := TokenPrefix + rand.Text() + rand.Text()
	out := access.Token{ID: strings.ToLower(rand.Text()[:10]), Hash: access.HashOf(text), Note: n.Note, Created: now}
	if n.TTL > 0 {
		out.Expires = now.Add(time.Duration(n.TTL) * time.Second)
	}
	return text, out, nil
}

// create makes a user with a token, and binds roles, as one change.
func (p *paths) create(w http.ResponseWriter, r *http.Request) error {
	var asked NewUser
	if err := rest.ReadJSON(w, r, &asked); err != nil {
		return err
	}
	spec := &access.User{Groups: asked.Groups}
	text, token := "", access.Token{}
	if asked.Token != nil {
		var err error
		if text, token, err = p.tokenOf(*asked.Token); err != nil {
			return err
		}
		spec.Tokens = []access.Token{token}
	}
	root := p.keeper.o.Root
	ops := []storage.Op{{Verb: storage.Create, Config: &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.User, Namespace: root, Name: asked.Name}, Spec: spec,
	}}}
	for _, role := range asked.Roles {
		namespace := role.Namespace
		if namespace == "" {
			namespace = root
		}
		ops = append(ops, storage.Op{Verb: storage.Create, Config: &config.Config{
			Meta: config.Meta{GroupVersionKind: schema.RoleBinding, Namespace: namespace, Name: asked.Name + "-" + role.Role},
			Spec: &access.RoleBinding{Role: role.Role, Subjects: []access.Subject{{Kind: access.SubjectUser, Name: asked.Name}}},
		}})
	}
	if err := p.mayCreate(r, ops); err != nil {
		return err
	}
	revision, _, err := p.store.Apply(r.Context(), ops)
	if errors.Is(err, storage.ErrExists) {
		return p.userExistsError(r.Context(), ops, err)
	}
	if err != nil {
		return err
	}
	p.api.Await(r.Context(), revision)
	rest.WriteJSON(w, http.StatusCreated, p.answer(asked.Name, text, token))
	return nil
}

// userExistsError returns an error that names the objects of a new user that exist already. err
// is the store's error.
func (p *paths) userExistsError(ctx context.Context, ops []storage.Op, err error) error {
	var bindings []config.Key
	for i, op := range ops {
		key := op.Target()
		switch _, failed := p.store.Get(ctx, key.Kind, key.Name, key.Namespace); {
		case errors.Is(failed, storage.ErrNotFound):
		case failed != nil:
			return err
		case i == 0:
			return alreadyExists("user %s is there already: portolan user token add %[1]s makes another token, and a RoleBinding gives a role", key.Name)
		default:
			bindings = append(bindings, key)
		}
	}
	if len(bindings) == 0 {
		return err // they were deleted in the meantime
	}
	return alreadyExists("there is no user %s, and a binding of an earlier one is left: portolan delete %s -n %s, and make the user then", ops[0].Target().Name,
		"rolebinding/"+bindings[0].Name, bindings[0].Namespace)
}

func alreadyExists(format string, args ...any) error {
	return rest.Refuse(http.StatusConflict, metav1.StatusReasonAlreadyExists, fmt.Sprintf(format, args...))
}

// mayCreate returns why the caller may not make a user with these bindings, nil if the caller
// may.
func (p *paths) mayCreate(r *http.Request, ops []storage.Op) error {
	who := rest.IdentityOf(r.Context())
	for _, op := range ops {
		key := op.Target()
		if _, err := p.keeper.o.Schemas.Kind(key.Kind).Validate(op.Config); err != nil {
			return fmt.Errorf("%w: %s: %w", storage.ErrInvalid, key, err)
		}
		err := p.keeper.Authorize(r.Context(), who, rest.Access{
			Verb: access.Create, Group: key.Kind.Group, Version: key.Kind.Version, Namespace: key.Namespace, Name: key.Name,
			Resource: p.keeper.o.Schemas.Kind(key.Kind).Plural,
		})
		if err != nil {
			return forbidden(err)
		}
	}
	for _, err := range p.keeper.Grants(r.Context(), who, ops) {
		if err != nil {
			return forbidden(err)
		}
	}
	if before := p.keeper.current(); who.Unproved && before != nil && len(before.users) == 0 && !administers(before, ops) {
		return rest.Refuse(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid,
			"roles: the first user must be an administrator: from then on nobody is let in without a credential, and only an administrator can make the others (--role admin)")
	}
	return nil
}

// administers says whether the user whom these operations make may do everything.
func administers(before *policy, ops []storage.Op) bool {
	next := objects{}
	for key, object := range before.objects {
		next[key] = object
	}
	for _, op := range ops {
		next[op.Target()] = op.Config
	}
	after := newPolicy(next, before.root, before.schemas)
	user := ops[0].Config
	who := rest.Identity{User: user.Name, Groups: append(slices.Clone(user.Spec.(*access.User).Groups), access.Authenticated)}
	return after.firstMissing(who, []Grant{everything}) == ""
}

// forbidden returns the API's error for an error of the keeper.
func forbidden(err error) error {
	var status interface{ Status() metav1.Status }
	if errors.As(err, &status) {
		return err
	}
	return rest.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, err.Error())
}

// addToken gives a user another token.
func (p *paths) addToken(w http.ResponseWriter, r *http.Request) error {
	var asked NewToken
	if err := rest.ReadJSON(w, r, &asked); err != nil {
		return err
	}
	text, token, err := p.tokenOf(asked)
	if err != nil {
		return err
	}
	err = p.change(r, func(u *access.User) error {
		if len(u.Tokens) >= maxTokens {
			return invalid("tokens", "are %d, as many as a user may have: revoke some", maxTokens)
		}
		u.Tokens = append(u.Tokens, token)
		return nil
	}, true)
	if err != nil {
		return err
	}
	rest.WriteJSON(w, http.StatusCreated, p.answer(r.PathValue("name"), text, token))
	return nil
}

// revoke deletes a token of a user.
func (p *paths) revoke(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	err := p.change(r, func(u *access.User) error {
		left := slices.DeleteFunc(slices.Clone(u.Tokens), func(t access.Token) bool { return t.ID == id })
		if len(left) == len(u.Tokens) {
			return rest.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("user %s has no token %s: portolan user token list %[1]s shows them", r.PathValue("name"), id))
		}
		u.Tokens = left
		return nil
	}, false)
	if err != nil {
		return err
	}
	rest.WriteJSON(w, http.StatusOK, metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess})
	return nil
}

// attempts is how often a change of a user is tried when others change the user at the same
// time.
const attempts = 5

// change edits the user that a request names. If gives is true, the caller must have all
// rights that the edited user has.
func (p *paths) change(r *http.Request, edit func(*access.User) error, gives bool) error {
	name := r.PathValue("name")
	for attempt := 1; ; attempt++ {
		stored, err := p.store.Get(r.Context(), schema.User, name, p.keeper.o.Root)
		if errors.Is(err, storage.ErrNotFound) {
			return rest.Refuse(http.StatusNotFound, metav1.StatusReasonNotFound, fmt.Sprintf("there is no user %s: portolan user list shows them", name))
		}
		if err != nil {
			return err
		}
		next := stored.Clone()
		user, ok := next.Spec.(*access.User)
		if !ok {
			return fmt.Errorf("%w: user %s cannot be read", storage.ErrUnavailable, name)
		}
		if err := edit(user); err != nil {
			return err
		}
		if gives {
			for _, err := range p.keeper.Grants(r.Context(), rest.IdentityOf(r.Context()), []storage.Op{{Verb: storage.Update, Config: next}}) {
				if err != nil {
					return forbidden(err)
				}
			}
		}
		revision, err := p.store.Update(r.Context(), next)
		if errors.Is(err, storage.ErrConflict) && attempt < attempts {
			continue
		}
		if err == nil {
			p.api.Await(r.Context(), revision)
		}
		return err
	}
}

func (p *paths) answer(user, text string, t access.Token) UserToken {
	return UserToken{
		TypeMeta: metav1.TypeMeta{Kind: "UserToken", APIVersion: access.Group + "/v1"},
		User:     user, Namespace: p.keeper.o.Root, ID: t.ID, Token: text, Expires: t.Expires,
	}
}
