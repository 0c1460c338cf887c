package oidc

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/portolan-mesh/portolan/discovery/identity"
	"github.com/portolan-mesh/portolan/storage/access"
)

// maxName bounds the bytes of the name of a user or a group.
const maxName = 256

// Prove implements identity.Proof. It returns the workload that holds the token.
func (v *Verifier) Prove(ctx context.Context, credential string, _ netip.Addr) (identity.Identity, error) {
	who, _, err := v.Workload(ctx, credential)
	return who, err
}

// Knows implements identity.Knower. It uses only keys that were fetched already.
func (v *Verifier) Knows(credential string, _ netip.Addr) bool {
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // so that Workload waits for nothing
	_, _, err := v.Workload(ctx, credential)
	return err == nil
}

// Workload returns the workload that a token names, and when the token expires. It returns
// the errors of Prove.
func (v *Verifier) Workload(ctx context.Context, token string) (identity.Identity, time.Time, error) {
	verified, err := v.Verify(ctx, token)
	if err != nil {
		return identity.Identity{}, time.Time{}, err
	}
	for _, issuer := range verified.Issuers {
		for _, rule := range issuer.Spec.Workloads {
			namespace, account, ok := workload(rule, verified.Claims)
			if !ok {
				continue
			}
			who, err := identity.New(v.o.TrustDomain, namespace, account)
			if err != nil {
				return identity.Identity{}, time.Time{}, fmt.Errorf("%w: a claim of the token is no part of an identity: %w", identity.ErrUnproven, err)
			}
			return who, verified.Expires, nil
		}
	}
	return identity.Identity{}, time.Time{}, fmt.Errorf("%w: the token is genuine, and no rule of %s says which workload its holder is", identity.ErrUnproven, names(verified.Issuers))
}

// A User is a user of the API that an issuer vouches for.
type User struct {
	// Name and Groups begin with the name of the TokenIssuer and a colon.
	Name   string
	Groups []string
	// Until is when the token expires.
	Until time.Time
}

// User returns the user that a token names. It returns the errors of Prove.
func (v *Verifier) User(ctx context.Context, token string) (User, error) {
	verified, err := v.Verify(ctx, token)
	if err != nil {
		return User{}, err
	}
	for _, issuer := range verified.Issuers {
		claims := issuer.Spec.Users
		if claims == nil {
			continue
		}
		at := cmp.Or(claims.Username, "sub")
		name, ok := verified.Claims[at].(string)
		if !ok || !isName(name) {
			return User{}, fmt.Errorf("%w: the token has no name in the claim %s, by which users are known", identity.ErrUnproven, at)
		}
		user := User{Name: issuer.Name + ":" + name, Until: verified.Expires}
		if claims.Groups == "" {
			return user, nil
		}
		for _, group := range stringsOf(verified.Claims[claims.Groups]) {
			if isName(group) {
				user.Groups = append(user.Groups, issuer.Name+":"+group)
			}
		}
		return user, nil
	}
	return User{}, fmt.Errorf("%w: the token is genuine, and %s vouches for no users", identity.ErrUnproven, names(verified.Issuers))
}

// isName says whether a text can name a user or a group: it is a short line.
func isName(text string) bool {
	return text != "" && len(text) <= maxName && !strings.ContainsFunc(text, unicode.IsControl)
}

func names(issuers []Issuer) string {
	out := make([]string, len(issuers))
	for i, one := range issuers {
		out[i] = "tokenissuer/" + one.Name
	}
	return strings.Join(out, ", ")
}

// workload returns the namespace and service account that a rule derives from claims, or false
// if the claims do not match the rule.
func workload(rule access.WorkloadRule, claims map[string]any) (namespace, account string, ok bool) {
	for _, match := range rule.Match {
		if !slices.ContainsFunc(stringsOf(claimAt(claims, match.Claim)), func(text string) bool { return matches(match.Values, text) }) {
			return "", "", false
		}
	}
	namespace, account = rule.Namespace, rule.ServiceAccount
	if len(rule.NamespaceClaim) > 0 {
		namespace, ok = claimAt(claims, rule.NamespaceClaim).(string)
		if !ok || namespace == "" {
			return "", "", false
		}
	}
	if len(rule.ServiceAccountClaim) > 0 {
		account, ok = claimAt(claims, rule.ServiceAccountClaim).(string)
		if !ok || account == "" {
			return "", "", false
		}
	}
	return namespace, account, true
}

// claimAt returns the claim at a path, nil if there is none.
func claimAt(claims map[string]any, path []string) any {
	var value any = claims
	for _, name := range path {
		within, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		value = within[name]
	}
	return value
}

// stringsOf returns a claim that is a string or a list of strings.
func stringsOf(claim any) []string {
	switch claim := claim.(type) {
	case string:
		return []string{claim}
	case []any:
		var out []string
		for _, one := range claim {
			if text, ok := one.(string); ok {
				out = append(out, text)
			}
		}
		return out
	}
	return nil
}

func matches(values []string, text string) bool {
	return slices.ContainsFunc(values, func(value string) bool {
		begin, open := strings.CutSuffix(value, "*")
		return value == text || open && strings.HasPrefix(text, begin)
	})
}
