package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/storage/schema"
)

// crashRounds is how often TestAcknowledgedWritesSurviveKill kills the server.
const crashRounds = 100

// TestAcknowledgedWritesSurviveKill kills the server, its store process, or both, while writers
// write. All acknowledged writes are there afterwards.
func TestAcknowledgedWritesSurviveKill(t *testing.T) {
	t.Parallel()
	rounds := crashRounds
	if testing.Short() {
		rounds = 6
	}
	s := startServer(t, serverOptions{})
	var acknowledged [4]int
	began := time.Now()
	for round := range rounds {
		parent, child := round%3 != 0, round%3 != 1
		s.writeUntil(t, &acknowledged, func() {
			store := storeOf(t, s.o.dataDir)
			if parent {
				s.kill()
			}
			if child {
				_ = syscall.Kill(store, syscall.SIGKILL) // it may have ended with its parent
			}
		})
		if parent {
			s.start()
		}
		s.verify(t, round, &acknowledged)
		if t.Failed() {
			t.Fatalf("round %d of %d (parent killed: %v, store killed: %v)", round+1, rounds, parent, child)
		}
	}
	t.Logf("%d rounds in %s, acknowledged writes by writer: %v", rounds, time.Since(began).Round(time.Second), acknowledged)
}

// writeUntil has every writer increase the value of its own object until kill is called, at a
// random moment, and a write fails after it. It updates the last acknowledged value of each
// writer.
func (s *server) writeUntil(t *testing.T, acknowledged *[4]int, kill func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	c, err := client.New(s.url(""), call.Options{HTTP: s.client})
	if err != nil {
		t.Fatal(err)
	}
	var writers sync.WaitGroup
	for i := range acknowledged {
		writers.Go(func() {
			for ctx.Err() == nil {
				if _, err := c.Apply(ctx, batch.New(counter(i, acknowledged[i]+1, ""))); err != nil {
					return
				}
				acknowledged[i]++
			}
		})
	}
	<-time.After(time.Duration(30+rand.IntN(120)) * time.Millisecond)
	kill()
	// If the server survives, its store process comes back, and the writers would never fail.
	after := time.AfterFunc(20*time.Millisecond, cancel)
	defer after.Stop()
	writers.Wait()
}

// counter returns the operation that sets the value of a writer's object, if the object has a
// resource version; "" is any.
func counter(i, value int, resourceVersion string) batch.Operation {
	document := fill(`
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: $writer, namespace: crash, labels: {value: "$value"}}
spec:
  hosts: [$writer.crash.test]
  resolution: STATIC
  ports: [{number: 80, name: http, protocol: HTTP}]
  endpoints: [{address: 127.0.0.1}]
`, "$writer", writer(i), "$value", value)
	decoded, err := config.Decode("test", []byte(document), schema.Pilot().Type)
	if err != nil {
		panic(err) // the test's own document
	}
	decoded[0].Config.ResourceVersion = resourceVersion
	operation, err := batch.Write(batch.Apply, decoded[0].Config)
	if err != nil {
		panic(err)
	}
	return operation
}

// verify waits until the server answers, and compares its content with the acknowledged writes.
// A last write without an answer may be there or not.
func (s *server) verify(t *testing.T, round int, acknowledged *[4]int) {
	t.Helper()
	var found map[string]object
	eventually(t, "the store is back, and agrees with its cache", func() error {
		var list struct{ Items []object }
		if _, err := s.get("/apis/networking.istio.io/v1/namespaces/crash/serviceentries", &list); err != nil {
			return err
		}
		found = map[string]object{}
		for _, o := range list.Items {
			found[o.Metadata.Name] = o
		}
		return s.agrees(t, found, len(acknowledged))
	})
	for i, last := range acknowledged {
		switch got := found[writer(i)].value(); got {
		case last, last + 1:
			acknowledged[i] = got
		default:
			t.Errorf("round %d: %s was told that %d is written, and %d is there", round, writer(i), last, got)
		}
	}
}

func writer(i int) string { return fmt.Sprintf("writer-%d", i) }

func (o object) value() int {
	n, _ := strconv.Atoi(o.Metadata.Labels["value"])
	return n
}

// agrees compares the cache with the store: it writes the cache's objects with their resource
// versions, which changes nothing.
func (s *server) agrees(t *testing.T, found map[string]object, writers int) error {
	c, err := client.New(s.url(""), call.Options{HTTP: s.client})
	if err != nil {
		return err
	}
	var operations []batch.Operation
	for i := range writers {
		o := found[writer(i)]
		operations = append(operations, counter(i, o.value(), o.Metadata.ResourceVersion))
	}
	result, err := c.Apply(t.Context(), batch.New(operations...))
	if err != nil {
		return err
	}
	for _, r := range result.Results {
		if r.Outcome != "unchanged" {
			return fmt.Errorf("%s was %s", r.Name, r.Outcome)
		}
	}
	return nil
}

// TestLongDataDir: the path of a data directory may be longer than that of a Unix socket.
func TestLongDataDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a data directory", strings.Repeat("long", 40))
	dir += strings.Repeat("x", max(0, 200-len(dir)))
	s, x := startServer(t, serverOptions{dataDir: dir}), newShop(t)
	s.apply(x.all(50, 50))
	before := s.storedKeys()
	s.kill()
	s.start()
	expectEqual(t, "what the store has after a restart", s.storedKeys(), before)
	if err := s.process.terminate(t); err != nil {
		t.Errorf("the server ended with %v on SIGTERM", err)
	}
	if len(dir) < 200 {
		t.Errorf("the path has %d bytes", len(dir))
	}
}

// TestServerEndsWithItsStore: however a server ends, its store process ends too.
func TestServerEndsWithItsStore(t *testing.T) {
	for name, end := range map[string]func(*server){
		"SIGTERM": func(s *server) { _ = s.process.terminate(s.t) },
		"SIGKILL": func(s *server) { s.kill() },
	} {
		t.Run(name, func(t *testing.T) {
			s := startServer(t, serverOptions{})
			store := storeOf(t, s.o.dataDir)
			end(s)
			eventually(t, "the store process has ended", func() error {
				if err := syscall.Kill(store, 0); !errors.Is(err, syscall.ESRCH) {
					return fmt.Errorf("process %d is there: %v", store, err)
				}
				return nil
			})
		})
	}
}
