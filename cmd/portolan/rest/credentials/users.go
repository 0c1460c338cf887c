package credentials

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

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/discovery/access"
	"github.com/portolan-mesh/portolan/storage"
	spec "github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/refusal"
	"github.com/portolan-mesh/portolan/storage/schema"
)

const (
	// UsersPath takes a POST of a NewUser, and answers with a UserToken.
	UsersPath = "/apis/" + spec.Group + "/v1/users"
	// TokensPath takes a POST of a NewToken for a user, and answers with a UserToken.
	TokensPath = UsersPath + "/{name}/tokens"
	// TokenPath takes a DELETE, which revokes the token with that id.
	TokenPath = TokensPath + "/{id}"

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

// Store is where these paths write users.
type Store interface {
	storage.ConfigStore
	storage.Batcher
}

// paths serves the paths that Users adds.
type paths struct {
	keeper *access.Keeper
	store  Store
	api    *rest.Server
}

// Users adds the paths of users and tokens, and those that answer what a caller may do, to a
// config API that does not serve yet.
func Users(api *rest.Server, k *access.Keeper, store Store) {
	p := &paths{k, store, api}
	api.Endpoint("POST "+UsersPath, p.create)
	api.Endpoint("POST "+TokensPath, p.addToken)
	api.Endpoint("DELETE "+TokenPath, p.revoke)
	p.reviews(api)
}

// tokenOf makes a token, and the record of it that is stored.
func (p *paths) tokenOf(n NewToken) (string, spec.Token, error) {
	if n.TTL < 0 || n.TTL > int64((100*365*24*time.Hour)/time.Second) {
		return "", spec.Token{}, refusal.Field("ttl", "is %d: give seconds, or 0 for a token without an end", n.TTL)
	}
	now := p.keeper.Now().UTC().Truncate(time.Second)
	text := access.TokenPrefix + rand.Text() + rand.Text()
	out := spec.Token{ID: strings.ToLower(rand.Text()[:10]), Hash: spec.HashOf(text), Note: n.Note, Created: now}
	if n.TTL > 0 {
		out.Expires = now.Add(time.Duration(n.TTL) * time.Second)
	}
	return text, out, nil
}

// firstUser is what changes with the first user, for whom it would come as a surprise.
const firstUser = "this is the first user: from now on the config API asks each caller who they are, and gateways of the server's machine that connect without a certificate are for no Gateway any more (proxies of the server's machine, in docs/operations/ports.md)"

// create makes a user with a token, and binds roles, as one change.
func (p *paths) create(w http.ResponseWriter, r *http.Request) error {
	var asked NewUser
	if err := rest.ReadJSON(w, r, &asked); err != nil {
		return err
	}
	user := &spec.User{Groups: asked.Groups}
	text, token := "", spec.Token{}
	if asked.Token != nil {
		var err error
		if text, token, err = p.tokenOf(*asked.Token); err != nil {
			return err
		}
		user.Tokens = []spec.Token{token}
	}
	root := p.keeper.Root()
	ops := []storage.Op{{Verb: storage.Create, Config: &config.Config{
		Meta: config.Meta{GroupVersionKind: schema.User, Namespace: root, Name: asked.Name}, Spec: user,
	}}}
	for _, role := range asked.Roles {
		namespace := role.Namespace
		if namespace == "" {
			namespace = root
		}
		ops = append(ops, storage.Op{Verb: storage.Create, Config: &config.Config{
			Meta: config.Meta{GroupVersionKind: schema.RoleBinding, Namespace: namespace, Name: asked.Name + "-" + role.Role},
			Spec: &spec.RoleBinding{Role: role.Role, Subjects: []spec.Subject{{Kind: spec.SubjectUser, Name: asked.Name}}},
		}})
	}
	if err := p.mayCreate(r, ops); err != nil {
		return err
	}
	first := !p.keeper.HasUsers()
	revision, _, err := p.store.Apply(r.Context(), ops)
	if errors.Is(err, storage.ErrExists) {
		return p.userExistsError(r.Context(), ops, err)
	}
	if err != nil {
		return err
	}
	p.api.Await(r.Context(), revision)
	if first {
		rest.Warn(w, firstUser)
	}
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
	return refusal.New(http.StatusConflict, metav1.StatusReasonAlreadyExists, fmt.Sprintf(format, args...))
}

// mayCreate returns why the caller may not make a user with these bindings, nil if the caller
// may.
func (p *paths) mayCreate(r *http.Request, ops []storage.Op) error {
	who := rest.IdentityOf(r.Context())
	for _, op := range ops {
		key := op.Target()
		if _, err := p.keeper.Schemas().Kind(key.Kind).Validate(op.Config); err != nil {
			return fmt.Errorf("%w: %s: %w", storage.ErrInvalid, key, err)
		}
		err := p.keeper.Authorize(r.Context(), who, access.Request{
			Verb: spec.Create, Group: key.Kind.Group, Version: key.Kind.Version, Namespace: key.Namespace, Name: key.Name,
			Resource: p.keeper.Schemas().Kind(key.Kind).Plural,
		})
		if err != nil {
			return refusal.As(err, refusal.Forbidden)
		}
	}
	for _, err := range p.keeper.Grants(r.Context(), who, ops) {
		if err != nil {
			return refusal.As(err, refusal.Forbidden)
		}
	}
	return p.keeper.CheckFirst(who, ops)
}

func (p *paths) addToken(w http.ResponseWriter, r *http.Request) error {
	var asked NewToken
	if err := rest.ReadJSON(w, r, &asked); err != nil {
		return err
	}
	text, token, err := p.tokenOf(asked)
	if err != nil {
		return err
	}
	err = p.change(r, func(u *spec.User) error {
		if len(u.Tokens) >= maxTokens {
			return refusal.Field("tokens", "are %d, as many as a user may have: revoke some", maxTokens)
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
	err := p.change(r, func(u *spec.User) error {
		left := slices.DeleteFunc(slices.Clone(u.Tokens), func(t spec.Token) bool { return t.ID == id })
		if len(left) == len(u.Tokens) {
			return refusal.NotFound(fmt.Sprintf("user %s has no token %s: portolan user token list %[1]s shows them", r.PathValue("name"), id))
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

// If gives is true, the caller must have all rights that the edited user has.
func (p *paths) change(r *http.Request, edit func(*spec.User) error, gives bool) error {
	name := r.PathValue("name")
	for attempt := 1; ; attempt++ {
		stored, err := p.store.Get(r.Context(), schema.User, name, p.keeper.Root())
		if errors.Is(err, storage.ErrNotFound) {
			return refusal.NotFound(fmt.Sprintf("there is no user %s: portolan user list shows them", name))
		}
		if err != nil {
			return err
		}
		next := stored.Clone()
		user, ok := next.Spec.(*spec.User)
		if !ok {
			return fmt.Errorf("%w: user %s cannot be read", storage.ErrUnavailable, name)
		}
		if err := edit(user); err != nil {
			return err
		}
		if gives {
			for _, err := range p.keeper.Grants(r.Context(), rest.IdentityOf(r.Context()), []storage.Op{{Verb: storage.Update, Config: next}}) {
				if err != nil {
					return refusal.As(err, refusal.Forbidden)
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

func (p *paths) answer(user, text string, t spec.Token) UserToken {
	return UserToken{
		TypeMeta: metav1.TypeMeta{Kind: "UserToken", APIVersion: spec.Group + "/v1"},
		User:     user, Namespace: p.keeper.Root(), ID: t.ID, Token: text, Expires: t.Expires,
	}
}
