package verdict

import (
	"fmt"
	"time"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// user judges whether somebody can prove to be a user by a token. A client certificate of the
// user's name may be anywhere, so it is no fault if nobody can. A disabled user is meant so.
func (j *judge) user(object *config.Config) {
	spec, ok := object.Spec.(*access.User)
	if !ok || spec.Disabled {
		return
	}
	j.read(userRow, object.Key().Path())
	if lives(spec, j.index.facts.Minute) {
		return
	}
	is := "has no token"
	if len(spec.Tokens) > 0 {
		is = fmt.Sprintf("has %d tokens, and all have ended", len(spec.Tokens))
		if len(spec.Tokens) == 1 {
			is = "has one token, which has ended"
		}
	}
	j.add(Verdict{
		Code: UserUnproved, Field: "spec.tokens",
		Message: is + ": nobody is let in as this user without a client certificate of that name",
		Remedy:  "make one with portolan user token add " + object.Name + ", or delete the user",
	})
}

// lives says whether a token of a user is valid at a minute since 1970; all are where the
// minute is not known.
func lives(u *access.User, minute int64) bool {
	now := time.Unix(minute*60, 0)
	for _, t := range u.Tokens {
		if minute == 0 || t.Expires.IsZero() || now.Before(t.Expires) {
			return true
		}
	}
	return false
}

// changedUsers iterates over the rows of users of whom a token is valid as of one of two facts
// alone.
func changedUsers(from, to Facts, yield func(row) bool) bool {
	if from.Minute == to.Minute {
		return true
	}
	for object := range to.Mesh.Inputs().Configs.List(schema.User, "") {
		if spec, ok := object.Spec.(*access.User); ok && lives(spec, from.Minute) != lives(spec, to.Minute) && !yield(userRow+row(object.Key().Path())) {
			return false
		}
	}
	return true
}

// changedKeys iterates over the rows of issuers whose keys can be fetched as of one of two
// facts alone, or for another cause not.
func changedKeys(from, to Facts, yield func(row) bool) bool {
	for c := range pmap.Diff(from.KeyFaults, to.KeyFaults) {
		if !yield(issuerRow + row(c.Key)) {
			return false
		}
	}
	return true
}
