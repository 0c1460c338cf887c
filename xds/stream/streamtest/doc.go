// Package streamtest is the conformance suite of the xDS protocol: what a server
// has to do that a client can see, as a table of rules. Each is run in both
// variants, over whatever serves: sessions, a stream of all types, streams of one
// type each.
//
// A rule speaks of what a client asks for and is answered, in the same words in
// both variants; the client of the suite says it as the protocol has it.
package streamtest
