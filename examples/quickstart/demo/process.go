package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a program that the demo started.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended
}

// launch starts a program. Its output goes to its own file. A Ctrl-C in the terminal does not
// reach it: the demo stops it.
func launch(dir, name, path string, args ...string) (*process, error) {
	log, err := os.OpenFile(filepath.Join(dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{name: name, log: log.Name(), cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait() // its log says how it ended
		_ = log.Close()
	}()
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// kill ends the process as kill -9 does.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails if it has ended already, which is fine
	<-p.done
}

// stop asks the process to end, and kills it where it does not.
func (p *process) stop() {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(8 * time.Second):
		p.kill()
	}
}

// ended returns an error if a process that should run has ended.
func (p *process) ended() error {
	select {
	case <-p.done:
	default:
		return nil
	}
	text, _ := os.ReadFile(p.log)
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return fmt.Errorf("%s has ended: %s", p.name, lines[len(lines)-1])
}

// freePorts returns ports of 127.0.0.1 that nothing listens on. They are below the kernel's
// ephemeral ports, so that they stay free.
func freePorts(n int) ([]int, error) {
	const first, number = 20000, 12000
	var out []int
	for i := range number {
		port := first + (os.Getpid()*97+i)%number
		l, err := net.Listen("tcp", local(port))
		if err != nil {
			continue // in use
		}
		if err := l.Close(); err != nil {
			return nil, err
		}
		if out = append(out, port); len(out) == n {
			return out, nil
		}
	}
	return nil, fmt.Errorf("%d free ports are needed from %d on, and %d are there", n, first, len(out))
}

// needFiles returns an error that says which files are missing, and how to get them.
func needFiles(paths ...string) error {
	for _, path := range paths {
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("there is no %s: run make demo at the root of the repository", path)
		} else if err != nil {
			return err
		}
	}
	return nil
}
