// Package storage is the contract of the stores that keep Portolan's
// configuration: ConfigStore, the atomic Batcher that the better ones offer,
// and the errors that callers tell apart.
//
// The stores are storage/memory and storage/etcd. Both pass the suite in
// storage/storetest, which is the executable form of this contract.
package storage
