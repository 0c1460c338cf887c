package integration

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/delivery/protocol"
)

// binary is the path of the portolan program that the scenarios run. TestMain builds it once.
var binary string

func TestMain(m *testing.M) {
	if file := os.Getenv(etcdConfig); file != "" {
		os.Exit(beEtcd(file))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "portolan-binary-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	_ = os.Setenv("PORTOLAN_CONFIG", filepath.Join(dir, "contexts.yaml")) // instead of the contexts of the user who runs the tests
	binary = filepath.Join(dir, "portolan")
	// The flags of the tests, to use the same build cache.
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/portolan").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build portolan: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// inBothVariants runs a scenario in delta and in state of the world, beside other tests.
func inBothVariants(t *testing.T, scenario func(t *testing.T, v protocol.Variant)) {
	t.Helper()
	t.Parallel()
	for name, v := range map[string]protocol.Variant{"delta": protocol.Delta, "world": protocol.StateOfTheWorld} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			scenario(t, v)
		})
	}
}

// patience is how long a test waits for a condition. It leaves time for a machine that is busy
// with other tests.
const patience = 30 * time.Second

// eventually waits until check returns nil, and fails with its last error
// otherwise.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	eventuallyWithin(t, patience, what, check)
}

// eventuallyWithin is eventually for what takes another time.
func eventuallyWithin(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// late reports whether something took longer than a limit. It extends the limit by as much as
// other work slows the machine down.
func late(took, limit time.Duration) bool {
	return took > limit && float64(took) > slowness()*float64(limit)
}

// slowness returns how much longer work takes now than on an idle machine: the mean duration of
// many short, equal pieces of work, divided by the shortest.
func slowness() float64 {
	const pieces = 200
	text := make([]byte, 1<<20)
	begun, fastest := time.Now(), time.Minute
	for range pieces {
		piece := time.Now()
		sha256.Sum256(text)
		fastest = min(fastest, time.Since(piece))
	}
	return float64(time.Since(begun)) / float64(pieces*fastest)
}

// fill replaces each $name in a document by the value that follows the name.
func fill(document string, pairs ...any) string {
	texts := make([]string, len(pairs))
	for i, p := range pairs {
		texts[i] = fmt.Sprint(p)
	}
	return strings.NewReplacer(texts...).Replace(document)
}
