// Package journal writes into the history what is no change of an object: certificates that
// were issued, and attempts that were refused. Many share a record, whoever waits for theirs,
// and a store that is away costs a bounded amount of memory.
package journal
