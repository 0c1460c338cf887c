package member

import (
	"log/slog"
	"strings"

	"go.uber.org/zap/zapcore"
)

// expected lists messages of etcd at a normal start or stop of a member. Nobody could
// act on them. They are about ports and tokens that the member does not have, about our
// limits, and about etcd's own version, which it repeats until the first entries are on
// disk. They are also about members that are away, which the parent reports in one line.
var expected = map[string]bool{
	"Running http and grpc server on single port. This is not recommended for production.": true,
	"simple token is not cryptographically signed":                                         true,
	"exceeded recommended request limit":                                                   true,
	"failed to update cluster version":                                                     true,
	"Failed to detect schema version":                                                      true,
	"failed to update storage version":                                                     true,
	// At every stop. A failed start returns these as an error as well.
	"setting up serving from embedded etcd failed.": true,
	"stopping insecure grpc server due to error":    true,
	"stopped insecure grpc server due to error":     true,
	"stopping secure grpc server due to error":      true,
	"stopped secure grpc server due to error":       true,

	"scheme is http or unix while key and cert files are present; ignoring key and cert files":           true,
	"scheme is http or unix while --client-cert-auth is enabled; ignoring client cert auth for this URL": true,
	"unable to set a member local address due to lack of suitable local addresses":                       true,

	// Of a member of another store at the address of one of this. The parent names it.
	"rejecting member add request; local member has not been connected to majority peers, reconfigure breaks active quorum": true, // it is asked again
	"request cluster ID mismatch":                                        true,
	"request sent was ignored due to cluster ID mismatch":                true,
	"request sent was ignored by remote peer due to cluster ID mismatch": true,
	"cluster ID mismatch":                                                true,

	"lost TCP streaming connection with remote peer":                                 true,
	"closed TCP streaming connection with remote peer":                               true,
	"peer became inactive (message send to peer failed)":                             true,
	"failed to find remote peer in cluster":                                          true,
	"prober detected unhealthy status":                                               true,
	"failed to reach the peer URL":                                                   true,
	"found different compact revision values from remote peer":                       true,
	"cannot fetch hash from slow remote peer":                                        true,
	"cannot fetch hash from remote peer; local member is behind":                     true,
	"failed to get hashKV":                                                           true,
	"failed hash kv request":                                                         true,
	"failed to get version":                                                          true,
	"failed to publish local member to cluster through raft":                         true,
	"stopped publish because server is stopping":                                     true,
	"waiting for ReadIndex response took too long, retrying":                         true,
	"timed out waiting for read index response (local node might have slow network)": true,
	"ignored out-of-date read index response; local node read indexes queueing up and waiting to be in sync with leader": true,
}

// pending ends the messages of a slowly starting member. It takes part in no election
// before it has read from its log who is in its cluster.
const pending = "since there are still pending configuration changes to apply"

// etcdLevel returns the level at which to log a message of etcd. Its information
// messages help only those who debug etcd itself.
func etcdLevel(l zapcore.Level, message string) slog.Level {
	switch {
	case l < zapcore.WarnLevel || expected[message] || strings.HasSuffix(message, pending):
		return slog.LevelDebug
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	default:
		return slog.LevelError
	}
}
