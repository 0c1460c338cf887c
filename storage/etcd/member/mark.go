package member

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/server/v3/storage/wal"
)

// ErrEmptied is the error of a data directory that had a store and has none any more:
// usually its volume is not mounted. A new store in its place would take the
// configuration away from all proxies.
var ErrEmptied = errors.New("the store is gone")

// A directory with a store has a mark file in it and one beside it. The one beside it
// remains when no volume is mounted at the directory.
const (
	markFile   = "portolan.store"
	besideFile = ".portolan" // appended to the name of the directory
)

// marks returns the files that mark a data directory as one with a store.
func marks(dataDir string) []string {
	return []string{filepath.Join(dataDir, markFile), filepath.Clean(dataDir) + besideFile}
}

// checkMarks refuses an empty data directory that had a store, unless the options ask
// for a new store. A member that joins others gets their data.
func checkMarks(opts Options) error {
	// Check the marks first: they are made after the data.
	var found []string
	for _, mark := range marks(opts.DataDir) {
		if _, err := os.Lstat(mark); err == nil {
			found = append(found, mark)
		}
	}
	switch {
	case wal.Exist(walDir(opts.DataDir)):
		if opts.NewStore {
			opts.Logger.Warn("--new-store has no effect, since the data directory has a store: leave it out", "dir", opts.DataDir)
		}
		return nil
	case len(found) == 0:
		return nil
	case hasData(opts.DataDir):
		return damageError(opts.DataDir, "log", walDir(opts.DataDir), errors.New("it is not there"))
	case opts.NewStore, opts.Cluster != nil && len(opts.Cluster.Join) > 0:
		return nil
	}
	what := fmt.Sprintf("%s had a store, as %s tells, and has none", opts.DataDir, strings.Join(found, " and "))
	meant := fmt.Sprintf("where a new, empty store is meant, start it once with --new-store, or remove %s first", strings.Join(found, " and "))
	if opts.Cluster != nil {
		return fmt.Errorf("%w; %s", opts.Cluster.alreadyUsedError(fmt.Sprintf("%v: %s", ErrEmptied, what)), meant)
	}
	return fmt.Errorf("%w: %s: a new store here would take the configuration of all proxies away: "+
		"mount its volume, move the directory back, or restore a snapshot (portolan store snapshot restore FILE --data-dir %s); %s",
		ErrEmptied, what, opts.DataDir, meant)
}

// mark makes the marks of a directory that has a store. The one beside it needs a parent
// directory that this user can write; without it the server goes on.
func mark(dataDir string, logger *slog.Logger) {
	for _, file := range marks(dataDir) {
		if _, err := os.Lstat(file); err == nil {
			continue
		}
		text := fmt.Sprintf("The data directory %s has a store of Portolan. If it is found empty while this file is there, no server\n"+
			"begins a new store in it. Remove this file with the directory, if you want that to go.\n", dataDir)
		err := os.WriteFile(file, []byte(text), 0o644)
		if err == nil {
			err = syncDir(filepath.Dir(file))
		}
		if err != nil {
			logger.Warn("a volume that is not mounted at the data directory would not be noticed, and a new store begin in its place: "+
				"let a user who can do so make this file, which may be empty", "file", file, "err", err)
		}
	}
}
