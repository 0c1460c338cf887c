// Package storage is the contract of the stores that keep Portolan's
// configuration: ConfigStore, the atomic Batcher that the better ones offer, the
// Leaser whose objects can live as long as a lease, and the errors that callers tell apart.
//
// The stores are storage/memory and storage/etcd. Both pass the suite in
// storage/storetest, which is the executable form of this contract.
package storage
