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

// QuietAfter is the age of an object, in minutes, at which somebody must have been seen at the
// addresses that it names.
const QuietAfter = 60

// QuietAt reports whether an object is that old at a minute since 1970. If the minute is 0, none
// is.
func QuietAt(object *config.Config, minute int64) bool {
	return minute != 0 && minute-object.CreationTimestamp.Unix()/60 >= QuietAfter
}

// grownQuiet iterates over the rows of the entries that have become so old.
func grownQuiet(from, to Facts, yield func(Row) bool) bool {
	if from.Minute == to.Minute {
		return true
	}
	for _, kind := range []config.GroupVersionKind{schema.WorkloadEntry, schema.ServiceEntry} {
		for object := range to.Mesh.Inputs().Configs.List(kind, "") {
			if QuietAt(object, from.Minute) != QuietAt(object, to.Minute) && !yield(QuietRow+Row(object.Key().Path())) {
				return false
			}
		}
	}
	return true
}
