package access

import (
	"github.com/portolan-mesh/portolan/storage/access"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// BuiltIn returns the rules of a built-in role, or false if no built-in role has that name.
func BuiltIn(name string, schemas schema.Set) ([]access.Rule, bool) {
	read := []string{access.Get, access.List, access.Watch}
	switch name {
	case access.Viewer:
		return []access.Rule{{Verbs: read, Kinds: []string{access.All}}}, true
	case access.Editor:
		var kinds []string
		for _, kind := range schemas.All() {
			if kind.Group != access.Group || kind.GroupVersionKind == schema.HostGrant {
				kinds = append(kinds, kind.Plural)
			}
		}
		return []access.Rule{
			{Verbs: read, Kinds: []string{access.All}},
			{Verbs: []string{access.Create, access.Update, access.Delete}, Kinds: kinds},
		}, true
	case access.Admin:
		return []access.Rule{everything.Rule}, true
	case access.SecretReader:
		return []access.Rule{{Verbs: append(read, access.Reveal), Kinds: []string{schema.Pilot().Kind(schema.Secret).Plural}}}, true
	case access.Issuer:
		return []access.Rule{{Verbs: append(read, access.Create, access.Update, access.Delete), Kinds: []string{"jointokens"}}}, true
	}
	return nil, false
}
