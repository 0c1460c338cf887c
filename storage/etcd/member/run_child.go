package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// childStopTimeout bounds how long the child waits for etcd to stop. Everything
// acknowledged is on disk already, so the process may then just exit.
const childStopTimeout = 3 * time.Second

// reportFD is the descriptor on which the child reports how its start went.
const reportFD = 3

// orders is the line that the child reads from its standard input.
type orders struct {
	DataDir  string    `json:"dataDir"`
	Socket   string    `json:"socket"`
	Quota    int64     `json:"quota,omitempty"`
	Founding Founding  `json:"founding,omitempty"`
	Cluster  *Cluster  `json:"cluster,omitempty"`
	Parent   processID `json:"parent"`
	laterOrders
}

// laterOrders are what a parent may change while the child runs. Each change is a line too.
type laterOrders struct {
	LogLevels string `json:"logLevels,omitempty"`
}

// A report is one line that the child writes to reportFD. The last report says that the
// child is ready, or why it cannot be. Earlier ones say that it waits for other members.
type report struct {
	Ready   bool     `json:"ready,omitempty"`
	Waiting *waiting `json:"waiting,omitempty"`
	Error   string   `json:"error,omitempty"`
	// Kind is the name of the error's sentinel in kinds.
	Kind string `json:"kind,omitempty"`
}

// kinds are the sentinels of a failed start, by name.
var kinds = map[string]error{
	"inUse": ErrInUse, "noSpace": ErrNoSpace, "damaged": ErrDamaged, "removed": ErrRemoved, "used": ErrUsed,
	"emptied": ErrEmptied, "noStore": ErrNoStore,
}

// kindOf returns the name of an error's sentinel, if it has one.
func kindOf(err error) string {
	for name, kind := range kinds {
		if errors.Is(err, kind) {
			return name
		}
	}
	return ""
}

// RunChild is the main function of the child process. It runs the member that its
// parent, a Child, ordered, until the parent or ctx ends. It ignores SIGINT, SIGTERM
// and SIGHUP, which users and service managers send to all processes of a server at
// once: the parent decides when the store ends.
//
// It calls setLogLevels with ChildOptions.LogLevels, and with those of Child.SetLogLevels.
//
// If the start fails, RunChild reports that to the parent, which shows it, and returns
// nil. It returns an error if etcd ends by itself later, or if no Child started the
// process.
func RunChild(ctx context.Context, logger *slog.Logger, setLogLevels func(string)) error {
	lifeline, reports, err := inheritedPipes()
	if err != nil {
		return err
	}
	defer reports.Close()
	// Standard error is a pipe to the parent: without this, a line logged after the
	// parent's death would kill this process before etcd is closed.
	signal.Ignore(unix.SIGPIPE)
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)

	var o orders
	decoder := json.NewDecoder(lifeline)
	if err := decoder.Decode(&o); err != nil {
		lifeline.Close()
		if errors.Is(err, io.EOF) {
			return nil // the parent ended at once
		}
		return fmt.Errorf("read orders from standard input: %w", err)
	}
	setLogLevels(o.LogLevels)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	orphaned := make(chan struct{})
	go func() {
		// The error does not matter: in any case the parent is gone.
		for later := o.laterOrders; decoder.Decode(&later) == nil; {
			setLogLevels(later.LogLevels)
		}
		_, _ = io.Copy(io.Discard, lifeline)
		close(orphaned)
		cancel()
	}()
	cleanUp := func() {
		select {
		case <-orphaned:
			removeSocketDir(filepath.Dir(o.Socket))
		default: // the parent restarts its process
		}
	}
	err = runOrders(ctx, o, reports, cleanUp, logger)
	cleanUp() // if the member failed to start or to end, it did not free the directory
	lifeline.Close()
	<-orphaned
	return err
}

// runOrders runs the member and reports how its start went.
func runOrders(ctx context.Context, o orders, reports *os.File, leaving func(), logger *slog.Logger) error {
	// If the report cannot be written, the parent has ended, and ctx with it.
	say := json.NewEncoder(reports)
	m, err := Start(ctx, Options{
		DataDir: o.DataDir, Socket: o.Socket, Quota: o.Quota, Founding: o.Founding, Cluster: o.Cluster, Logger: logger,
		StopTimeout: childStopTimeout, parent: o.Parent, leaving: leaving,
		waiting: func(w waiting) { _ = say.Encode(report{Waiting: &w}) },
	})
	r := report{Ready: err == nil}
	if err != nil {
		r.Error, r.Kind = err.Error(), kindOf(err)
	}
	_ = say.Encode(r)
	reports.Close()
	if err != nil {
		return nil
	}
	return m.Run(ctx)
}

// inheritedPipes returns the two pipes that a Child gives to the process that
// it starts.
func inheritedPipes() (lifeline, reports *os.File, err error) {
	for _, fd := range []int{0, reportFD} {
		var stat unix.Stat_t
		if err := unix.Fstat(fd, &stat); err != nil || uint32(stat.Mode)&unix.S_IFMT != unix.S_IFIFO {
			return nil, nil, errors.New("the store process is started by the server, not by hand")
		}
		unix.CloseOnExec(fd)
		// Only reads that do not block can be ended by Close.
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, nil, fmt.Errorf("descriptor %d: %w", fd, err)
		}
	}
	return os.NewFile(0, "orders"), os.NewFile(reportFD, "report"), nil
}
