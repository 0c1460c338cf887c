package member

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A processID identifies one process, and no later one with the same number. Start is
// its start time, in the kernel's ticks, or 0 if there is no /proc.
type processID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start,omitempty"`
}

func self() processID {
	_, start := procStat(os.Getpid())
	return processID{PID: os.Getpid(), Start: start}
}

// alive says whether the process runs. Another process with its number does not count,
// nor does a zombie.
func (p processID) alive() bool {
	if p.PID <= 0 {
		return false
	}
	if err := unix.Kill(p.PID, 0); errors.Is(err, unix.ESRCH) {
		return false
	}
	state, start := procStat(p.PID)
	if state == 'Z' || state == 'X' {
		return false
	}
	return p.Start == 0 || start == 0 || p.Start == start
}

// procStat returns the state and the start time of a process from /proc, or
// zeroes.
func procStat(pid int) (state byte, start uint64) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	// The command, in parentheses, may hold spaces and parentheses itself.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 20 {
		return 0, 0
	}
	start, err = strconv.ParseUint(string(fields[19]), 10, 64)
	if err != nil {
		return fields[0][0], 0
	}
	return fields[0][0], start
}
