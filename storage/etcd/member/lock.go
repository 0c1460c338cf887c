package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrInUse is the error of a data directory that another process has open.
var ErrInUse = errors.New("data directory in use")

// lockFile is the name of the lock in a data directory.
const lockFile = "portolan.lock"

// APISocket is the name, in a data directory, of the API socket of the server that uses
// the directory.
const APISocket = "api.sock"

// A holder whose parent has died is about to end. orphanWait is how long to wait for
// that, orphanPoll how often to check.
const (
	orphanWait = 5 * time.Second
	orphanPoll = 20 * time.Millisecond
)

// A holder describes, in the lock file, the process that holds the lock.
type holder struct {
	PID int `json:"pid"`
	// ParentPID is the server that the holder works for: the holder itself if it is the
	// server. ParentStart distinguishes the server from a later process with the same
	// number.
	ParentPID   int       `json:"parentPid"`
	ParentStart uint64    `json:"parentStart,omitempty"`
	SocketDir   string    `json:"socketDir,omitempty"`
	Started     time.Time `json:"started"`
}

// newHolder describes this process, which works for parent if there is one.
func newHolder(parent processID, socketDir string) holder {
	if parent.PID == 0 {
		parent = self()
	}
	return holder{
		PID: os.Getpid(), ParentPID: parent.PID, ParentStart: parent.Start,
		SocketDir: socketDir, Started: time.Now().UTC().Truncate(time.Second),
	}
}

// parent returns the server that the holder works for.
func (h holder) parent() processID { return processID{PID: h.ParentPID, Start: h.ParentStart} }

// inUse is the error for another process that wants the directory.
func (h holder) inUse(dir string) error {
	who, advice := fmt.Sprintf("process %d", h.ParentPID), "stop that server"
	switch {
	case h.PID == 0:
		who = "a process that did not say who it is"
	case h.PID == h.ParentPID:
	case h.parent().alive():
		who += fmt.Sprintf(" (its store process is %d)", h.PID)
	default:
		who, advice = fmt.Sprintf("process %d, which outlived its server", h.PID), "end that process"
	}
	return fmt.Errorf("%w: %s is held by %s: %s, or give this one another data directory", ErrInUse, dir, who, advice)
}

// A dirLock is the lock of a data directory, held until it is released or the
// process ends, however it ends.
type dirLock struct {
	file    *os.File
	leaving func() // called last by the holder; nil for nothing
}

// lockDir locks a data directory for a holder, or returns ErrInUse. It waits only for a
// holder that is about to end. It removes the remains of a holder that was killed.
func lockDir(ctx context.Context, dir string, h holder) (*dirLock, error) {
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("data directory %s: %w: choose a directory this user can write", dir, err)
	}
	if err := flock(ctx, dir, file); err != nil {
		file.Close()
		return nil, err
	}
	if last, ok := readHolder(file); ok && last.SocketDir != h.SocketDir {
		removeSocketDir(last.SocketDir)
	}
	if err := writeHolder(file, h); err != nil {
		file.Close()
		return nil, fmt.Errorf("data directory %s: %w", dir, err)
	}
	return &dirLock{file: file}, nil
}

// flock takes the lock on an open lock file. The file may still name an earlier holder
// when another one has just taken the lock. So flock does not fail at once if the named
// holder is not a live server.
func flock(ctx context.Context, dir string, file *os.File) error {
	giveUp := time.NewTimer(orphanWait)
	defer giveUp.Stop()
	poll := time.NewTicker(orphanPoll)
	defer poll.Stop()
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return fmt.Errorf("data directory %s: lock %s: %w: choose one on a file system that has locks", dir, lockFile, err)
		}
		h, ok := readHolder(file)
		if ok && h.parent().alive() {
			return h.inUse(dir)
		}
		select {
		case <-poll.C:
		case <-giveUp.C:
			return h.inUse(dir)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// release leaves the file in place, empty: if it were removed, two processes could lock
// two files of the same name.
func (l *dirLock) release() {
	if l.leaving != nil {
		l.leaving()
	}
	// If this fails, the next holder reads an old name and ignores it.
	_ = l.file.Truncate(0)
	_ = l.file.Close()
}

// readHolder reads the lock file, which may be empty or half written.
func readHolder(file *os.File) (holder, bool) {
	var h holder
	err := json.NewDecoder(io.NewSectionReader(file, 0, 1<<16)).Decode(&h)
	return h, err == nil && h.PID > 0
}

// writeHolder replaces what the lock file says.
func writeHolder(file *os.File, h holder) error {
	line, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	_, err = file.WriteAt(append(line, '\n'), 0)
	return err
}
