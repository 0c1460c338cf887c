package verdict

import (
	"time"

	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/pmap"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// HasValidToken reports whether a token of a user is valid at a minute since 1970. If the
// minute is 0, all tokens are.
func HasValidToken(u *access.User, minute int64) bool {
	now := time.Unix(minute*60, 0)
	for _, t := range u.Tokens {
		if minute == 0 || t.Expires.IsZero() || now.Before(t.Expires) {
			return true
		}
	}
	return false
}

// changedUsers iterates over the rows of users with a valid token in only one of two facts.
func changedUsers(from, to Facts, yield func(Row) bool) bool {
	if from.Minute == to.Minute {
		return true
	}
	for object := range to.Mesh.Inputs().Configs.List(schema.User, "") {
		if spec, ok := object.Spec.(*access.User); ok && HasValidToken(spec, from.Minute) != HasValidToken(spec, to.Minute) && !yield(UserRow+Row(object.Key().Path())) {
			return false
		}
	}
	return true
}

// changedKeys iterates over the rows of issuers for which the reason why keys cannot be fetched
// differs between two facts.
func changedKeys(from, to Facts, yield func(Row) bool) bool {
	for c := range pmap.Diff(from.KeyFaults, to.KeyFaults) {
		if !yield(IssuerRow + Row(c.Key)) {
			return false
		}
	}
	return true
}

// BoundBy returns the role of a RoleBinding, empty for another object.
func BoundBy(object *config.Config) string {
	if object == nil {
		return ""
	}
	spec, ok := object.Spec.(*access.RoleBinding)
	if !ok {
		return ""
	}
	return spec.Role
}
