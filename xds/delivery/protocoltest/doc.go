// Package protocoltest is the conformance suite of the xDS protocol: what a client can see
// of a server, as a table of rules. Each rule runs in both variants, over any server:
// subscriptions, a stream of all types, streams of one type each.
//
// A rule describes requests and answers in the same words for both variants; the suite's
// client translates them into the protocol.
package protocoltest
