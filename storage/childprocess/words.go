package childprocess

import (
	"bytes"
	"io"
	"sync"
)

// maxWords bounds how much of a line lastWords keeps, and maxTrace how much of the trace
// after a panic. A line longer than maxLine is passed on in parts.
const (
	maxWords = 1024
	maxTrace = 16 << 10
	maxLine  = 64 << 10
)

// lastWords passes on what a process writes to its standard error, in whole lines, since others may
// write to the same place. It keeps the line
// that best says why the process ended: the first of a Go panic, with its trace, or
// else the last line.
type lastWords struct {
	out io.Writer

	mu      sync.Mutex // guards the fields below
	held    []byte     // the line being written, not passed on yet
	line    []byte     // the line being written
	last    string
	isPanic bool
	trace   []byte
}

// Write implements io.Writer. It never fails: if nobody reads our standard error, the
// child must go on.
func (w *lastWords) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = append(w.held, b...)
	if end := bytes.LastIndexByte(w.held, '\n') + 1; end > 0 {
		_, _ = w.out.Write(w.held[:end])
		w.held = append(w.held[:0], w.held[end:]...)
	}
	if len(w.held) > maxLine {
		w.pass()
	}
	for rest := b; len(rest) > 0; {
		line, after, whole := bytes.Cut(rest, []byte("\n"))
		w.line = append(w.line, line[:min(len(line), maxWords-len(w.line))]...)
		if whole {
			w.endLine()
		}
		rest = after
	}
	return len(b), nil
}

// flush passes on a line that has no end.
func (w *lastWords) flush() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass()
}

// pass is called with mu held.
func (w *lastWords) pass() {
	if len(w.held) > 0 {
		_, _ = w.out.Write(w.held)
		w.held = w.held[:0]
	}
}

// endLine is called with mu held.
func (w *lastWords) endLine() {
	line := bytes.TrimSpace(w.line)
	w.line = w.line[:0]
	switch {
	case len(line) == 0:
		return
	case w.isPanic:
		w.trace = append(append(w.trace, line[:min(len(line), maxTrace-len(w.trace))]...), '\n')
		w.trace = w.trace[:min(len(w.trace), maxTrace)]
		return
	}
	w.last = string(line)
	w.isPanic = bytes.HasPrefix(line, []byte("panic: ")) || bytes.HasPrefix(line, []byte("fatal error: "))
}

// String returns the kept line.
func (w *lastWords) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// panicked returns the trace of the panic that ended the process, if one did.
func (w *lastWords) panicked() (trace string, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.trace), w.isPanic
}
