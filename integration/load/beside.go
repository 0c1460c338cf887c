package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"

	"github.com/portolan-mesh/portolan/integration/load/floor"
)

// besideFloor repeats the measurements with a floor server, which only sends what the first
// proxy received.
func (m *run) besideFloor(ctx context.Context, dir string) (err error) {
	if !m.cell.floor || m.floor.Responses == nil {
		return nil
	}
	f, err := startFloor(ctx, dir, m.floor, m.mutual)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	floored := func(name string, _ unit, v float64) { m.floors[name] = v }
	if err := f.ResetPeak(); err != nil {
		return err
	}
	all, stop, err := m.firstSync(ctx, f.Process, f.address, nil, floored)
	if err != nil {
		return err
	}
	defer stop()
	for _, kind := range m.cell.changes {
		if m.floor.Changes[kind] == nil {
			continue
		}
		var of changed
		for range m.reps {
			err := m.once(ctx, all, f.Process, kind, m.marks[kind].Mark, &of, func() error { return f.push(kind) })
			if err != nil {
				return fmt.Errorf("floor: %s: %w", kind, err)
			}
		}
		m.addChange(kind, kind, of, floored)
	}
	return nil
}

// floorServer is a server that only sends, in a process of its own.
type floorServer struct {
	child
	address string
	input   *bufio.Writer
}

var listening = regexp.MustCompile(`^listening on (\S+)`)

func startFloor(ctx context.Context, dir string, r floor.Recording, over *mutual) (*floorServer, error) {
	file := filepath.Join(dir, "recording")
	if err := writeRecording(file, r); err != nil {
		return nil, err
	}
	own, err := os.Executable()
	if err != nil {
		return nil, err
	}
	certificates := "" // none
	if over != nil {
		certificates = over.dir
	}
	c := exec.Command(own, floorArg, file, certificates)
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	started, m, err := startChild(ctx, c, filepath.Join(dir, "floor.log"), listening)
	if err != nil {
		return nil, err
	}
	return &floorServer{child: started, address: m[1], input: bufio.NewWriter(in)}, nil
}

// push makes the server send the responses of a change.
func (f *floorServer) push(kind string) error {
	_, err := fmt.Fprintln(f.input, kind)
	return errors.Join(err, f.input.Flush())
}

func writeRecording(file string, r floor.Recording) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	return gob.NewEncoder(out).Encode(r)
}

func readRecording(file string) (r floor.Recording, err error) {
	in, err := os.Open(file)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	return r, gob.NewDecoder(in).Decode(&r)
}

// beFloor runs a server that only sends. Each line on standard input names a change to send. If
// certificates is a directory, the server speaks mutual TLS.
func beFloor(ctx context.Context, file, certificates string) error {
	r, err := readRecording(file)
	if err != nil {
		return err
	}
	var over *tls.Config
	if certificates != "" {
		if over, err = serverTLS(certificates); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s := floor.New(r)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	defer running.Wait()
	ended := make(chan error, 1)
	running.Go(func() { ended <- s.Serve(ctx, l, over) })
	fmt.Fprintf(os.Stderr, "listening on %s\n", l.Addr())
	lines := make(chan string)
	go func() { // ends with the process
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- strings.TrimSpace(in.Text())
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-ended:
			return err
		case change := <-lines:
			s.Push(change)
		}
	}
}
