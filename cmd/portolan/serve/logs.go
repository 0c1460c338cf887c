package serve

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// logBurst lines of one message are logged at once, and then logRate a second.
	logBurst, logRate = 100, 10
	// logMessages bounds how many messages have their own limit.
	logMessages = 1000
	// logPause is the time after which the log says how many lines were left out.
	logPause = 10 * time.Second
)

// limitLogs bounds how often the same message is logged, whatever its attributes, so that
// clients cannot fill the disk with lines that they cause. It logs how many lines it has
// dropped. All debug lines pass.
func limitLogs(to slog.Handler) slog.Handler {
	return &limitedLog{handler: to, limits: &logLimits{byMessage: map[string]*logLimit{}, out: to}}
}

type limitedLog struct {
	handler slog.Handler
	limits  *logLimits // shared by all handlers made of one
}

// Enabled implements slog.Handler.
func (l *limitedLog) Enabled(ctx context.Context, level slog.Level) bool {
	return l.handler.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (l *limitedLog) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && !l.limits.allow(r) {
		return nil
	}
	return l.handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l *limitedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limitedLog{l.handler.WithAttrs(attrs), l.limits}
}

// WithGroup implements slog.Handler.
func (l *limitedLog) WithGroup(name string) slog.Handler {
	return &limitedLog{l.handler.WithGroup(name), l.limits}
}

type logLimits struct {
	out slog.Handler

	mu        sync.Mutex // guards the fields below
	byMessage map[string]*logLimit
	telling   bool // a timer runs that will log the dropped lines
}

// logLimit is the limit of one message.
type logLimit struct {
	room  float64 // how many lines may follow at once
	last  time.Time
	level slog.Level
	left  int // lines dropped
}

func (l *logLimits) allow(r slog.Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := l.byMessage[r.Message]
	if limit == nil {
		if len(l.byMessage) >= logMessages && !l.telling {
			clear(l.byMessage)
		}
		limit = &logLimit{room: logBurst, last: r.Time}
		l.byMessage[r.Message] = limit
	}
	limit.room = min(logBurst, limit.room+logRate*r.Time.Sub(limit.last).Seconds())
	limit.last, limit.level = r.Time, r.Level
	if limit.room >= 1 {
		limit.room--
		return true
	}
	limit.left++
	if !l.telling {
		l.telling = true
		time.AfterFunc(logPause, l.logDropped)
	}
	return false
}

// logDropped logs how many lines were dropped.
func (l *logLimits) logDropped() {
	l.mu.Lock()
	var records []slog.Record
	for message, limit := range l.byMessage {
		if limit.left > 0 {
			r := slog.NewRecord(time.Now(), limit.level, "log lines were left out, as there were too many of them", 0)
			r.AddAttrs(slog.String("message", message), slog.Int("lines", limit.left))
			records = append(records, r)
			limit.left = 0
		}
	}
	l.telling = false
	l.mu.Unlock()
	for _, r := range records {
		_ = l.out.Handle(context.Background(), r) // nobody could handle the error
	}
}
