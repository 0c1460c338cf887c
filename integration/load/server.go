package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/call"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/client"
	"github.com/portolan-mesh/portolan/integration/load/meter"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/xdstest/refmesh"
)

// ending is how long a server may take to end.
const ending = 30 * time.Second

// child is a server in a process of its own.
type child struct {
	meter.Process
	stop func() error
}

// startChild runs a command until it has printed a line that matches ready, and returns the
// submatches. Its error output goes to a file.
func startChild(ctx context.Context, c *exec.Cmd, log string, ready *regexp.Regexp) (child, []string, error) {
	file, err := os.Create(log)
	if err != nil {
		return child{}, nil, err
	}
	out, err := c.StderrPipe()
	if err != nil {
		return child{}, nil, errors.Join(err, file.Close())
	}
	if err := c.Start(); err != nil {
		return child{}, nil, errors.Join(err, file.Close())
	}
	said := make(chan []string, 1)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		defer close(said)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadString('\n')
			_, _ = file.WriteString(line)
			if m := ready.FindStringSubmatch(line); m != nil {
				select {
				case said <- m:
				default:
				}
			}
			if err != nil {
				return
			}
		}
	}()
	started := child{Process: meter.Process(c.Process.Pid), stop: func() error {
		_ = c.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(ending, func() { _ = c.Process.Kill() })
		defer late.Stop()
		<-drained
		return errors.Join(c.Wait(), file.Close())
	}}
	select {
	case m, ok := <-said:
		if ok {
			return started, m, nil
		}
		_ = started.stop()
		text, _ := os.ReadFile(log)
		return child{}, nil, fmt.Errorf("%s did not start:\n%s", c.Path, text)
	case <-ctx.Done():
		return child{}, nil, errors.Join(ctx.Err(), started.stop())
	}
}

// server is a `portolan serve`.
type server struct {
	child
	api, xds string // xds with TLS, if it serves that
	client   *client.Client
}

var announced = regexp.MustCompile(`msg=ready api=(\S+) xds=(\S+)(?: secure-xds=(\S+))?`)

// startServer runs a server on a data directory, unless the arguments name an etcd, and waits until
// it is ready.
func startServer(ctx context.Context, binary, dir string, args ...string) (*server, error) {
	all := append([]string{"serve", "--api-address", "127.0.0.1:0", "--xds-address", "127.0.0.1:0", "--pprof"}, args...)
	if !slices.Contains(args, etcdFlag) {
		all = append(all, "--data-dir", filepath.Join(dir, "data"))
	}
	c, m, err := startChild(ctx, exec.Command(binary, all...), filepath.Join(dir, "server.log"), announced)
	if err != nil {
		return nil, err
	}
	s := &server{child: c, api: m[1], xds: cmp.Or(m[3], m[2])}
	if s.client, err = client.New(s.api, call.Options{UserAgent: "load"}); err != nil {
		return nil, errors.Join(err, c.stop())
	}
	return s, nil
}

// storeCPU returns the processor time of the store's processes.
func (s *server) storeCPU() (time.Duration, error) {
	children, err := s.Children()
	var total time.Duration
	for _, c := range children {
		cpu, err2 := c.CPU()
		err, total = errors.Join(err, err2), total+cpu
	}
	return total, err
}

// perBatch is how many objects of the mesh one batch writes.
const perBatch = 500

// write creates or replaces objects.
func (s *server) write(ctx context.Context, objects []*config.Config) error {
	for len(objects) > 0 {
		n := min(perBatch, len(objects))
		if err := s.apply(ctx, refmesh.Change{Objects: objects[:n]}); err != nil {
			return err
		}
		objects = objects[n:]
	}
	return nil
}

// apply makes a change.
func (s *server) apply(ctx context.Context, change refmesh.Change) error {
	b, err := batchOf(change)
	if err != nil {
		return err
	}
	_, err = s.client.Apply(ctx, b)
	return err
}

// batchOf returns a change as a batch of the API.
func batchOf(change refmesh.Change) (batch.Batch, error) {
	var operations []batch.Operation
	for _, object := range change.Objects {
		if change.Delete {
			operations = append(operations, batch.Remove(object.Key(), ""))
			continue
		}
		operation, err := batch.Write(batch.Apply, object)
		if err != nil {
			return batch.Batch{}, err
		}
		operations = append(operations, operation)
	}
	return batch.New(operations...), nil
}

// get reads a path of the server's API.
func (s *server) get(ctx context.Context, path string, into io.Writer) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(s.api, "/")+path, nil)
	if err != nil {
		return err
	}
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = a.Body.Close() }()
	if a.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, a.Status)
	}
	_, err = io.Copy(into, a.Body)
	return err
}

// collect makes the server collect its garbage.
func (s *server) collect(ctx context.Context) error {
	for range 2 { // objects with finalizers take more than one
		if err := s.get(ctx, "/debug/pprof/heap?gc=1", io.Discard); err != nil {
			return err
		}
	}
	return nil
}

// memory returns the server's heap and stacks in use, without garbage.
func (s *server) memory(ctx context.Context) (int64, error) {
	if err := s.collect(ctx); err != nil {
		return 0, err
	}
	gauges, err := s.gauges(ctx)
	return int64(gauges["go_memstats_heap_alloc_bytes"] + gauges["go_memstats_stack_inuse_bytes"]), err
}

// gauges returns the server's metrics, by name.
func (s *server) gauges(ctx context.Context) (map[string]float64, error) {
	var text strings.Builder
	if err := s.get(ctx, "/metrics", &text); err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text.String()))
	if err != nil {
		return nil, err
	}
	out := map[string]float64{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			if g := m.GetGauge(); g != nil {
				out[name] += g.GetValue()
			}
		}
	}
	return out, nil
}

// profile starts a CPU profile of the server, for some time, and writes it to a file. wait
// waits for the file.
func (s *server) profile(ctx context.Context, file string, length time.Duration) (wait func() error) {
	done := make(chan error, 1)
	go func() {
		f, err := os.Create(file)
		if err == nil {
			err = errors.Join(s.get(ctx, fmt.Sprintf("/debug/pprof/profile?seconds=%d", max(1, int(length.Seconds()))), f), f.Close())
		}
		done <- err
	}()
	return func() error { return <-done }
}
