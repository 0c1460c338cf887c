// Package nameset keeps equal sets of names once in memory, however many streams use them.
//
// The proxies of a mesh request much the same names: thousands of streams have a set of
// thousands of names each, but few of these sets differ. A Table gives equal sets one
// representation. It refers to the sets weakly, so a set is freed with its last user.
package nameset
