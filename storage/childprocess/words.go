package childprocess

import (
	"bytes"
	"io"
	"sync"
)

// maxWords bounds how much of a line lastWords keeps, and maxTrace how much of the trace
// after a panic.
const (
	maxWords = 1024
	maxTrace = 16 << 10
)

// lastWords passes on what a process writes to its standard error. It keeps the line
// that best says why the process ended: the first of a Go panic, with its trace, or
// else the last line.
type lastWords struct {
	out io.Writer

	mu      sync.Mutex
	line    []byte // the line being written
	last    string
	isPanic bool
	trace   []byte
}

// Write implements io.Writer. It never fails: if nobody reads our standard error, the
// child must go on.
func (w *lastWords) Write(b []byte) (int, error) {
	_, _ = w.out.Write(b)
	w.mu.Lock()
	defer w.mu.Unlock()
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
