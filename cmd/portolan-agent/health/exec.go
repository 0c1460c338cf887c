package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"

	"github.com/portolan-mesh/portolan/xds/names/probe"
)

var errExec = errors.New("this machine allows no probes that run programs: set health.exec in the file of its agent, or give the probe another method")

// exec runs a program as the agent's user, and succeeds by the status 0. A program that takes too
// long is killed with all that it has started.
func (c Checker) exec(ctx context.Context, m *probe.Probe_Exec) error {
	if !c.Exec {
		return errExec
	}
	if len(m.GetCommand()) == 0 {
		return errors.New("the probe names no program")
	}
	cmd := exec.CommandContext(ctx, m.GetCommand()[0], m.GetCommand()[1:]...)
	var said firstLine
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = afterKill
	err := cmd.Run()
	var ended *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay): // it has left a program behind that has its output
		return nil
	case !errors.As(err, &ended):
		return err
	}
	if line := said.String(); line != "" {
		return fmt.Errorf("%w, %q", ended, line)
	}
	return ended
}

// firstLine keeps the begin of the first line that is written.
type firstLine struct {
	text bytes.Buffer
	full bool
}

const maxLine = 200

func (f *firstLine) Write(b []byte) (int, error) {
	head, _, ended := bytes.Cut(b, []byte("\n"))
	if !f.full {
		f.text.Write(head[:min(len(head), maxLine-f.text.Len())])
	}
	f.full = f.full || ended || f.text.Len() == maxLine
	return len(b), nil
}

func (f *firstLine) String() string {
	return strings.ToValidUTF8(strings.TrimSpace(f.text.String()), "")
}
