package address

import "strings"

// A source other than the store owns the address of a host as a ServiceEntry of the store
// does, by a name that no object can have.

// ownerPrefix begins the name of an owner that is a source.
const ownerPrefix = "source:"

// OwnerOf is the name under which a source owns addresses.
func OwnerOf(source string) string { return ownerPrefix + source }

// SourceOf returns the source that an owner is; false for a ServiceEntry of the store.
func SourceOf(owner string) (source string, ok bool) { return strings.CutPrefix(owner, ownerPrefix) }
