// Package address gives the hosts of ServiceEntries that name no address one of
// their own: stable, and the same for every server of a store.
package address
