package files

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"
)

// The defaults of Options.
const (
	DefaultSettle    = 100 * time.Millisecond
	DefaultMaxSettle = 2 * time.Second
	DefaultHold      = 10 * time.Second
	DefaultRescan    = 30 * time.Second
	DefaultMaxSize   = 16 << 20
	DefaultMaxFiles  = 100_000
)

// Timing says how long Follow waits. A zero field stands for its default.
type Timing struct {
	// Settle is how long a path must stay unchanged before Follow reads it.
	Settle time.Duration
	// MaxSettle is how long a path at rest waits for others that are not.
	MaxSettle time.Duration
	// Hold is how long a path may be absent, while others change, before it is gone. A
	// file that is written to for longer is a fault.
	Hold time.Duration
	// Rescan is how often Follow reads all paths, whatever the system notified: some file
	// systems notify nothing.
	Rescan time.Duration
}

// Options configure Follow. Path, Parse and Update are required.
type Options[T any] struct {
	// Path is a directory; with Single it is one file.
	Path   string
	Single bool
	// Parse makes a value of the content of a file. Several goroutines call it.
	Parse func(path string, data []byte) T
	// Update receives the changes. The goroutine of Follow calls it.
	Update func(Update[T])

	Timing
	// MaxSize is the largest file that is read, in bytes; 0 for DefaultMaxSize.
	MaxSize int64
	// MaxFiles is how many files a tree may have; 0 for DefaultMaxFiles.
	MaxFiles int
}

// Update is what has changed since the last one.
type Update[T any] struct {
	// Changes are in the order in which they have to be applied.
	Changes []Change[T]
	// Faults lists all files and directories that Follow cannot read now, in the order of
	// their paths. Their last content still counts.
	Faults []Fault
	// Degraded says why the known content may be stale, and Since since when; nil if it is
	// up to date. A fault of one file in a tree does not count.
	Degraded error
	Since    time.Time
	// Begun says that the whole path was read at least once.
	Begun bool
	// Files is the number of files whose content counts.
	Files int
}

// Change is one file that was read, or is gone.
type Change[T any] struct {
	// Path is relative to Options.Path, with slashes. For a single file it is the name.
	Path  string
	Value T // the result of Parse
	Gone  bool
}

// Fault is a file or a directory that cannot be read.
type Fault struct {
	Path  string
	Err   error
	Since time.Time
	// Held says that the last content still counts.
	Held bool
}

// extensions are the extensions of the files of a tree that are read.
var extensions = []string{".yaml", ".yml", ".json"}

// Wanted says whether a file of a tree is read, by its name: it has an extension of YAML or
// JSON, and is no backup or lock file of an editor.
func Wanted(name string) bool {
	return slices.Contains(extensions, filepath.Ext(name)) && !hidden(name) && name[0] != '#' && name[0] != '~'
}

// hidden says whether a file or directory is ignored, such as .git and the directories
// behind a ConfigMap volume.
func hidden(name string) bool { return name[0] == '.' }

func (o *Options[T]) complete() error {
	if o.Path == "" {
		return errors.New("follow files: the path is empty")
	}
	path, err := filepath.Abs(o.Path)
	if err != nil {
		return fmt.Errorf("follow %s: %w", o.Path, err)
	}
	o.Path = path
	o.Settle, o.MaxSettle = cmp.Or(o.Settle, DefaultSettle), cmp.Or(o.MaxSettle, DefaultMaxSettle)
	o.Hold, o.Rescan = cmp.Or(o.Hold, DefaultHold), cmp.Or(o.Rescan, DefaultRescan)
	o.MaxSize, o.MaxFiles = cmp.Or(o.MaxSize, DefaultMaxSize), cmp.Or(o.MaxFiles, DefaultMaxFiles)
	return nil
}
