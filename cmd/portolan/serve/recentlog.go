package serve

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
)

// What a server keeps of its log: at most so many lines and bytes, and of a long line its
// beginning.
const (
	recentLines    = 2000
	recentBytes    = 1 << 20
	recentLineSize = 16 << 10
)

// recentLog keeps the newest lines of a log in memory, for a debug bundle.
type recentLog struct {
	mu    sync.Mutex // guards what follows
	lines [][]byte   // the oldest first
	size  int        // of all lines
}

// keep returns a handler that passes records on, and keeps those that it passes on.
func (l *recentLog) keep(to slog.Handler) slog.Handler {
	return keptLog{to, slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})}
}

// Write implements io.Writer for a slog.TextHandler, which writes one line at a time.
func (l *recentLog) Write(line []byte) (int, error) {
	kept := bytes.Clone(line[:min(len(line), recentLineSize)])
	if len(kept) < len(line) {
		kept = append(kept, "... (cut)\n"...)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines, l.size = append(l.lines, kept), l.size+len(kept)
	for len(l.lines) > recentLines || l.size > recentBytes {
		l.size -= len(l.lines[0])
		l.lines[0] = nil // the array behind the slice must not hold it
		l.lines = l.lines[1:]
	}
	return len(line), nil
}

// text returns the kept lines.
func (l *recentLog) text() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Join(l.lines, nil)
}

// keptLog is a handler that also writes to another.
type keptLog struct{ handler, kept slog.Handler }

// Enabled implements slog.Handler.
func (k keptLog) Enabled(ctx context.Context, level slog.Level) bool {
	return k.handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (k keptLog) Handle(ctx context.Context, r slog.Record) error {
	return errors.Join(k.handler.Handle(ctx, r.Clone()), k.kept.Handle(ctx, r))
}

// WithAttrs implements slog.Handler.
func (k keptLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return keptLog{k.handler.WithAttrs(attrs), k.kept.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (k keptLog) WithGroup(name string) slog.Handler {
	return keptLog{k.handler.WithGroup(name), k.kept.WithGroup(name)}
}
