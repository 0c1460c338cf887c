package contexts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// lockPoll is how often Update tries to lock a file that another program has locked.
const lockPoll = 20 * time.Millisecond

// Update replaces a file by the result of edit, while no other Update can change it. It writes
// nothing if edit fails or changes nothing. It waits for another Update until ctx ends.
func Update(ctx context.Context, file string, edit func(File) (File, bool, error)) error {
	if file == "" {
		return errNowhere
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	lock, err := os.OpenFile(file+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // this also unlocks it
	for {
		err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", lock.Name(), err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("another portolan is changing %s: %w", file, ctx.Err())
		case <-time.After(lockPoll):
		}
	}
	before, err := Read(file)
	if err != nil {
		return err
	}
	after, changed, err := edit(before)
	if err != nil || !changed {
		return err
	}
	return after.Write(file)
}
