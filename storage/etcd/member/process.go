package member

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"time"

	"github.com/portolan-mesh/portolan/storage/childprocess"
)

// A process is one run of the child's command, seen from the parent. Its standard input is a
// lifeline: when that is closed, as by the end of the parent, the child ends.
type process struct {
	*childprocess.Process
	lifeline *os.File
	// logLevels are those that the process was told last.
	logLevels string
	// reports is the pipe on which the child reports its start; decoder decodes it.
	reports *os.File
	decoder *json.Decoder
	// ready is since when the process is ready; nil before.
	ready atomic.Pointer[time.Time]
	// silent is since when the process has not answered, nil while it does.
	silent atomic.Pointer[time.Time]
}

// startProcess executes the command and hands it its orders.
func startProcess(opts ChildOptions, o orders) (*process, error) {
	stdin, lifeline, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start store process: %w", err)
	}
	defer stdin.Close()
	reports, reportEnd, err := os.Pipe()
	if err != nil {
		lifeline.Close()
		return nil, fmt.Errorf("start store process: %w", err)
	}
	defer reportEnd.Close()
	running, err := childprocess.Start(childprocess.Command{
		Path: opts.Executable, Args: opts.Args, Env: opts.Env, Output: opts.Stderr,
		Stdin: stdin, ExtraFiles: []*os.File{reportEnd}, // becomes reportFD in the child
		End: func() { lifeline.Close() },
	})
	if err != nil {
		lifeline.Close()
		reports.Close()
		return nil, fmt.Errorf("start store process: %w", err)
	}
	p := &process{Process: running, lifeline: lifeline, reports: reports, decoder: json.NewDecoder(reports)}
	p.logLevels = o.LogLevels
	p.order(o)
	return p, nil
}

// order writes a line of orders.
func (p *process) order(line any) {
	// A line this short fits the pipe's buffer. The parent notices in other ways that a child
	// is gone or hangs, and does not read it.
	_ = p.lifeline.SetWriteDeadline(time.Now().Add(time.Second))
	_ = json.NewEncoder(p.lifeline).Encode(line)
}

// awaitReport waits for the child's next report; nil means that the child is ready. A
// child that has failed sends no further report.
func (p *process) awaitReport(ctx context.Context) (*waiting, error) {
	stop := context.AfterFunc(ctx, func() { p.reports.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var r report
	err := p.decoder.Decode(&r)
	if err == nil && r.Waiting != nil {
		return r.Waiting, nil
	}
	defer p.reports.Close()
	switch {
	case err == nil && r.Ready:
		now := time.Now()
		p.ready.Store(&now)
		return nil, nil
	case err == nil:
		return nil, &childError{words: r.Error, is: kinds[r.Kind]}
	case ctx.Err() != nil:
		return nil, fmt.Errorf("start store process: %w", context.Cause(ctx))
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("start store process: read its report: %w", err)
	}
	// The child has closed its end of the pipe without a report: it is ending.
	p.Stop(childStopTimeout)
	cause := p.Cause()
	if trace, ok := p.Panicked(); ok {
		cause = &panicError{value: cause, stack: trace}
	}
	return nil, fmt.Errorf("store process ended before it was ready: %w", cause)
}

// readyFor returns how long an ended process was ready.
func (p *process) readyFor() time.Duration {
	if ready := p.ready.Load(); ready != nil {
		return p.Ended().Sub(*ready)
	}
	return 0
}

// A childError is an error with the text of the child's report.
type childError struct {
	words string
	is    error
}

// Error implements error.
func (e *childError) Error() string { return e.words }

// Unwrap returns the sentinel that the child's report names, if any.
func (e *childError) Unwrap() error { return e.is }
