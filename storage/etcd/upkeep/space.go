package upkeep

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Space is the space of a file system, in bytes. Free is what users other than root can
// still take.
type Space struct{ Free, Total int64 }

// SpaceOf returns the space of the file system that a directory is on.
func SpaceOf(dir string) (Space, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return Space{}, fmt.Errorf("free space of %s: %w", dir, err)
	}
	unit := int64(fs.Bsize)
	return Space{Free: int64(fs.Bavail) * unit, Total: int64(fs.Blocks) * unit}, nil
}

// Wanted returns how much should be free: a tenth of the file system, at least 1 GiB,
// and at most 8 GiB, the most that a store can take.
func (s Space) Wanted() int64 { return min(max(s.Total/10, 1<<30), 8<<30) }

// watchSpace warns before the file system is full.
func (k *Keeper) watchSpace() {
	s, err := SpaceOf(k.target.DataDir)
	if err != nil {
		if k.warnings.space.shouldLog(k.p.Now()) {
			k.log.Warn("the free space of the store is unknown", "err", err)
		}
		return
	}
	k.space.Store(&s)
	switch {
	case s.Free >= s.Wanted():
		if k.warnings.space.clear() {
			k.log.Info("the store has enough free space again", "dir", k.target.DataDir, "freeMiB", mib(s.Free))
		}
	case k.warnings.space.shouldLog(k.p.Now()):
		k.log.Warn("little free space for the store, which stops when there is none: free some or move the data directory",
			"dir", k.target.DataDir, "freeMiB", mib(s.Free), "wantedMiB", mib(s.Wanted()))
	}
}
