package member

import (
	"log/slog"

	"golang.org/x/sys/unix"
)

// minFree is the free space below which Start warns. An empty member alone
// takes 138 MiB, and etcd ends when it cannot write.
const minFree = 1 << 30

// warnOfLittleSpace logs a warning if the file system of dir is nearly full.
func warnOfLittleSpace(dir string, logger *slog.Logger) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		logger.Debug("free space of the data directory is unknown", "dir", dir, "err", err)
		return
	}
	free := uint64(fs.Bavail) * uint64(fs.Bsize)
	if free < minFree {
		logger.Warn("little free space for the store: it stops when the disk is full; free some or move the data directory",
			"dir", dir, "freeMiB", free>>20, "wantedMiB", minFree>>20)
	}
}
