// Package loglevel gives each component of a server a log level of its own, which may change while
// the server runs.
//
//	levels := loglevel.New(spec)
//	logger := slog.New(loglevel.NewHandler(to, levels))
//	xds := logger.With(loglevel.XDS.Attr())
package loglevel
