package meter

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the time that the process has run.
func (p Process) CPU() (time.Duration, error) {
	// asScheduled selects the clock of a process as clock_getcpuclockid(3) does: the inverted
	// pid, above three bits. The clock counts nanoseconds, while /proc counts hundredths of a
	// second.
	const asScheduled = 2
	var at unix.Timespec
	if err := unix.ClockGettime(^int32(p)<<3|asScheduled, &at); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", p, err)
	}
	return time.Duration(at.Nano()), nil
}

// Usage returns what the process uses.
func (p Process) Usage() (Usage, error) {
	cpu, err := p.CPU()
	if err != nil {
		return Usage{}, err
	}
	text, err := os.ReadFile(p.file("status"))
	if err != nil {
		return Usage{}, err
	}
	resident, err1 := kibibytes(text, "VmRSS:")
	peak, err2 := kibibytes(text, "VmHWM:")
	return Usage{cpu, resident, peak}, errors.Join(err1, err2)
}

// ResetPeak makes Peak count from now on.
func (p Process) ResetPeak() error { return os.WriteFile(p.file("clear_refs"), []byte("5"), 0) }

// Children returns the running processes that the process has started.
func (p Process) Children() ([]Process, error) {
	files, err := filepath.Glob(p.file("task/*/children"))
	if err != nil {
		return nil, err
	}
	var out []Process
	for _, file := range files {
		text, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // the thread has ended
		}
		if err != nil {
			return nil, err
		}
		for child := range strings.FieldsSeq(string(text)) {
			number, err := strconv.Atoi(child)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			out = append(out, Process(number))
		}
	}
	return out, nil
}

func (p Process) file(name string) string { return fmt.Sprintf("/proc/%d/%s", p, name) }

// kibibytes returns the bytes of a line such as "VmRSS:   1234 kB".
func kibibytes(text []byte, name string) (int64, error) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		value, ok := strings.CutPrefix(lines.Text(), name)
		if !ok {
			continue
		}
		number, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(value, "kB")), 10, 64)
		return number << 10, err
	}
	return 0, fmt.Errorf("/proc has no %s", name)
}
