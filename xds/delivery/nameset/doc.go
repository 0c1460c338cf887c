// Package nameset has sets of names that are held once, however many hold them.
//
// The proxies of a mesh ask for much the same names: thousands of sets of
// thousands of names are but a few. A Table gives equal sets one representation,
// and holds none of them itself: a set goes when the last who holds it goes.
package nameset
