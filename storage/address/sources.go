package address

import "strings"

// Sources of configuration beside the store own addresses too. The name of such an owner is
// one that no ServiceEntry can have.

// ownerPrefix begins the name of an owner that is a source.
const ownerPrefix = "source:"

// OwnerOf returns the name under which a source owns addresses.
func OwnerOf(source string) string { return ownerPrefix + source }

// SourceOf returns the source that an owner stands for; false if the owner is a
// ServiceEntry of the store.
func SourceOf(owner string) (source string, ok bool) { return strings.CutPrefix(owner, ownerPrefix) }
