package member

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// newZap returns a zap logger that writes to a slog logger, at the level that
// the given function makes of zap's entry.
func newZap(logger *slog.Logger, level func(zapcore.Level, string) slog.Level) *zap.Logger {
	return zap.New(&zapCore{handler: logger.With("component", "etcd").Handler(), level: level})
}

// expected are what etcd complains of on a common start or stop of a member
// like ours. Nobody could act on it: it is about ports and tokens that the
// member does not have, about our choice of limits, and about notes of its own
// version, which it takes down again and again until the first entries are on
// disk.
var expected = map[string]bool{
	"Running http and grpc server on single port. This is not recommended for production.": true,
	"simple token is not cryptographically signed":                                         true,
	"exceeded recommended request limit":                                                   true,
	"failed to update cluster version":                                                     true,
	"Failed to detect schema version":                                                      true,
	"failed to update storage version":                                                     true,
	// At every stop; what fails at a start is returned as an error as well.
	"setting up serving from embedded etcd failed.": true,
	"stopping insecure grpc server due to error":    true,
	"stopped insecure grpc server due to error":     true,
}

// etcdLevel is the level of what the server says. Its information is of use
// only to those who look into etcd itself.
func etcdLevel(l zapcore.Level, message string) slog.Level {
	switch {
	case l < zapcore.WarnLevel || expected[message]:
		return slog.LevelDebug
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	default:
		return slog.LevelError
	}
}

// clientLevel is the level of what the client says: its warnings repeat the
// errors that its callers are returned.
func clientLevel(zapcore.Level, string) slog.Level { return slog.LevelDebug }

// zapCore is a zapcore.Core over a slog.Handler.
type zapCore struct {
	handler slog.Handler
	level   func(zapcore.Level, string) slog.Level
}

// Enabled implements zapcore.LevelEnabler.
func (c *zapCore) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), c.level(l, ""))
}

// With implements zapcore.Core.
func (c *zapCore) With(fields []zapcore.Field) zapcore.Core {
	return &zapCore{handler: c.handler.WithAttrs(attributes(fields)), level: c.level}
}

// Check implements zapcore.Core.
func (c *zapCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.handler.Enabled(context.Background(), c.level(e.Level, e.Message)) {
		return ce.AddCore(e, c)
	}
	return ce
}

// Write implements zapcore.Core.
func (c *zapCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	record := slog.NewRecord(e.Time, c.level(e.Level, e.Message), e.Message, 0)
	record.AddAttrs(attributes(fields)...)
	return c.handler.Handle(context.Background(), record)
}

// Sync implements zapcore.Core.
func (c *zapCore) Sync() error { return nil }

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
