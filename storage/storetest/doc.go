// Package storetest is the contract of storage.ConfigStore, storage.Batcher and
// storage.Historian in executable form: Run and RunHistory hold a store to
// every sentence of it, in one named subtest each.
package storetest
