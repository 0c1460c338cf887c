package security

import (
	"fmt"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/verdict"
)

// User judges a User.
func User(j *verdict.Judge, object *config.Config) { (&judge{j}).user(object) }

// user warns if a user has no valid token. That is only a hint, since a client certificate of
// the user's name may exist anywhere. A disabled user gets no verdict.
func (j *judge) user(object *config.Config) {
	spec, ok := object.Spec.(*access.User)
	if !ok || spec.Disabled {
		return
	}
	j.Read(verdict.UserRow, object.Key().Path())
	if verdict.HasValidToken(spec, j.Facts().Minute) {
		return
	}
	is := "has no token"
	if len(spec.Tokens) > 0 {
		is = fmt.Sprintf("has %d tokens, and all have ended", len(spec.Tokens))
		if len(spec.Tokens) == 1 {
			is = "has one token, which has ended"
		}
	}
	j.Add(verdict.Verdict{
		Code: verdict.UserUnproved, Field: "spec.tokens",
		Message: is + ": nobody is let in as this user without a client certificate of that name",
		Remedy:  "make one with portolan user token add " + object.Name + ", or delete the user",
	})
}
