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

// ErrNoStore is the error of an empty data directory of a member that is to begin no store.
var ErrNoStore = errors.New("there is no store")

// Founding says whether a new store may begin in a data directory that has none. A member
// that joins others gets their data and begins no store.
type Founding int

const (
	// FoundFresh begins one where no mark tells that the directory had a store; if one
	// does, that is an ErrEmptied.
	FoundFresh Founding = iota
	// FoundNever begins none: an empty directory is an ErrNoStore or an ErrEmptied.
	FoundNever
	// FoundAsked begins one, as the operator asked. A mark outranks that: the operator asked
	// for the first store, maybe in a unit, and not for another one.
	FoundAsked
)

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

// CheckFounding refuses an empty data directory in which no new store may begin: with
// ErrEmptied, ErrNoStore or ErrDamaged. It changes nothing.
func CheckFounding(dataDir string, founding Founding, c *Cluster) error {
	// Check the marks first: they are made after the data.
	var found []string
	for _, mark := range marks(dataDir) {
		if _, err := os.Lstat(mark); err == nil {
			found = append(found, mark)
		}
	}
	joins := c != nil && len(c.Join) > 0
	switch {
	case wal.Exist(walDir(dataDir)):
		return nil
	case len(found) > 0 && hasData(dataDir):
		return damageError(dataDir, "log", walDir(dataDir), errors.New("it is not there"))
	case joins:
		return nil
	case len(found) > 0:
		return emptiedError(dataDir, c, strings.Join(found, " and "))
	case founding == FoundNever:
		return fmt.Errorf("%w: %s is empty, and a server that other machines can reach begins no store by itself: "+
			"restore a backup into it (portolan store restore FILE --data-dir %s), join the store of another server (--join), "+
			"mount its volume if it has one, or, for the first server of a new mesh, start it once with --new-store", ErrNoStore, dataDir, dataDir)
	}
	return nil
}

// emptiedError says what to do about a directory whose marks tell that it had a store.
func emptiedError(dataDir string, c *Cluster, marks string) error {
	what := fmt.Sprintf("%s had a store, as %s tells, and has none", dataDir, marks)
	meant := fmt.Sprintf("where a new, empty store is meant, remove %s first", marks)
	if c != nil {
		return fmt.Errorf("%w; %s", c.alreadyUsedError(fmt.Sprintf("%v: %s", ErrEmptied, what)), meant)
	}
	return fmt.Errorf("%w: %s: a new store here would take the configuration of all proxies away: "+
		"mount its volume, move the directory back, or restore a backup (portolan store restore FILE --data-dir %s); %s",
		ErrEmptied, what, dataDir, meant)
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
