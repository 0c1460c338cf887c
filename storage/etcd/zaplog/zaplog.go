// Package zaplog makes etcd, which logs with zap, log to slog.
package zaplog

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New returns a zap logger that writes to a slog logger. level maps the level and the
// message of an entry to slog's level. Lines say component=etcd.
func New(logger *slog.Logger, level func(zapcore.Level, string) slog.Level) *zap.Logger {
	return zap.New(&core{handler: logger.With("component", "etcd").Handler(), level: level})
}

// core is a zapcore.Core over a slog.Handler.
type core struct {
	handler slog.Handler
	level   func(zapcore.Level, string) slog.Level
}

// Enabled implements zapcore.LevelEnabler.
func (c *core) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), c.level(l, ""))
}

// With implements zapcore.Core.
func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{handler: c.handler.WithAttrs(attributes(fields)), level: c.level}
}

// Check implements zapcore.Core.
func (c *core) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.handler.Enabled(context.Background(), c.level(e.Level, e.Message)) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements zapcore.Core.
func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	record := slog.NewRecord(e.Time, c.level(e.Level, e.Message), e.Message, 0)
	record.AddAttrs(attributes(fields)...)
	return c.handler.Handle(context.Background(), record)
}

// Sync implements zapcore.Core.
func (c *core) Sync() error { return nil }

// attributes returns zap's fields as slog's. One field may add several.
func attributes(fields []zapcore.Field) []slog.Attr {
	attrs := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		values := zapcore.NewMapObjectEncoder()
		f.AddTo(values)
		for _, key := range slices.Sorted(maps.Keys(values.Fields)) {
			attrs = append(attrs, slog.Any(key, values.Fields[key]))
		}
	}
	return attrs
}
