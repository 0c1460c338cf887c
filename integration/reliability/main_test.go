package reliability_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The flags of a run; `make reliability` sets them.
var (
	seedFlag     = flag.Uint64("seed", 0, "the seed of the first run; 0 is a random one")
	seedsFlag    = flag.Int("seeds", 1, "how many runs, each with the next seed; with one, every topology is run, with more they take turns")
	durationFlag = flag.Duration("duration", 12*time.Second, "how long the clients of a run are at work")
	topologyFlag = flag.String("topology", "", "the only topology to run: see topologies")
	binaryFlag   = flag.String("binary", "", "the program to run; built from the sources without one")
	keepFlag     = flag.String("keep", "", "the directory that histories of failed runs are kept in; a temporary one without")
)

func TestMain(m *testing.M) {
	if document := os.Getenv(memberVariable); document != "" {
		os.Exit(runMember(document))
	}
	flag.Parse()
	status := m.Run()
	built.remove()
	if err := goleak.Find(); status == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// binaries are the built programs, by the changes in them.
type binaries struct {
	mu  sync.Mutex // guards the fields below
	dir string
	by  map[string]string
}

var built = binaries{by: map[string]string{}}

// portolan returns the path of the unchanged program.
func portolan(t testing.TB) string {
	if *binaryFlag != "" {
		return *binaryFlag
	}
	return built.build(t, "portolan", "")
}

// build builds the program once, with an overlay of changed sources if one is
// named.
func (b *binaries) build(t testing.TB, name, overlay string) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if path, ok := b.by[name]; ok {
		return path
	}
	if b.dir == "" {
		dir, err := os.MkdirTemp("", "portolan-reliability-")
		if err != nil {
			t.Fatal(err)
		}
		b.dir = dir
	}
	path := filepath.Join(b.dir, name)
	args := []string{"build", "-o", path}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	build := exec.CommandContext(ctx, "go", append(args, "../../cmd/portolan")...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	b.by[name] = path
	return path
}

func (b *binaries) remove() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}

// await waits until check returns nil, and returns its last error otherwise.
func await(ctx context.Context, within time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not within %s: %w", within, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// pass waits for a duration, or until ctx ends.
func pass(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
