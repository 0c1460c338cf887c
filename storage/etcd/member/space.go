package member

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/server/v3/storage/wal"

	"github.com/portolan-mesh/portolan/storage/etcd/upkeep"
)

// ErrNoSpace is the error of a file system that is too full to start etcd on.
var ErrNoSpace = errors.New("too little free space")

// startRoom is the space that etcd needs to start, besides its log.
const startRoom = 16 << 20

// checkSpace refuses to start etcd on a file system where it would soon end: etcd ends
// its process when it cannot write. It reserves its log in segments of 64 MB, one to
// write to and the next in reserve.
// https://github.com/etcd-io/etcd/issues/4744
func checkSpace(dir string) error {
	space, err := upkeep.SpaceOf(dir)
	if err != nil {
		return fmt.Errorf("data directory %s: %w", dir, err)
	}
	missing, err := missingSegments(walDir(dir))
	if err != nil {
		return fmt.Errorf("data directory %s: %w", dir, err)
	}
	need := int64(missing)*wal.SegmentSizeBytes + startRoom
	if space.Free >= need {
		return nil
	}
	return fmt.Errorf("data directory %s: %w: its file system has %d MiB free of %d MiB, and the store needs %d MiB to start: free some, or move the directory",
		dir, ErrNoSpace, space.Free>>20, space.Total>>20, (need+1<<20-1)>>20)
}

// missingSegments returns how many segments of the log are yet to be reserved.
func missingSegments(dir string) (int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, err
	}
	current, reserve := 1, 1
	for _, e := range entries {
		info, err := e.Info()
		switch {
		case err != nil: // it has gone meanwhile
		case strings.HasSuffix(e.Name(), ".wal"):
			current = 0
		case strings.HasSuffix(e.Name(), ".tmp") && info.Size() >= wal.SegmentSizeBytes:
			reserve = 0
		}
	}
	return current + reserve, nil
}

// etcdDir returns the directory of etcd's data.
func etcdDir(dataDir string) string { return filepath.Join(dataDir, "etcd") }

func walDir(dataDir string) string { return filepath.Join(etcdDir(dataDir), "member", "wal") }

func dbFile(dataDir string) string { return filepath.Join(etcdDir(dataDir), "member", "snap", "db") }
