// Package storetest is the contract of storage.ConfigStore and storage.Batcher
// in executable form: Run holds a store to every sentence of it, in one named
// subtest each.
package storetest
