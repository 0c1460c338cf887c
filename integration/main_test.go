package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/xds/stream"
)

// binary is the portolan that the scenarios run, built once by TestMain.
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
	binary = filepath.Join(dir, "portolan")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "../cmd/portolan")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as `make build`, whose cache it shares
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build portolan: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

// inBothVariants runs a scenario in delta and in state of the world.
func inBothVariants(t *testing.T, scenario func(t *testing.T, v stream.Variant)) {
	t.Helper()
	t.Run("delta", func(t *testing.T) { scenario(t, stream.Delta) })
	t.Run("world", func(t *testing.T) { scenario(t, stream.StateOfTheWorld) })
}

// patience is how long a condition may take to come true: long, for a machine
// that is busy with other tests.
const patience = 30 * time.Second

// eventually waits until check returns nil, and fails with its last error
// otherwise.
func eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, patience, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// fill replaces each $name in a document by the value that follows the name.
func fill(document string, pairs ...any) string {
	texts := make([]string, len(pairs))
	for i, p := range pairs {
		texts[i] = fmt.Sprint(p)
	}
	return strings.NewReplacer(texts...).Replace(document)
}
