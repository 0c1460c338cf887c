package member

import (
	"log/slog"

	"go.uber.org/zap/zapcore"
)

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
