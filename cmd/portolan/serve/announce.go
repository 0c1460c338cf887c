package serve

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// slowStart is how long a start takes before the log says what it waits for.
const slowStart = 2 * time.Second

// awaitFirst waits until the first configuration is published, and logs what a slow start waits for.
// It returns false if ctx ended before.
func (s *server) awaitFirst(ctx context.Context) bool {
	look := time.NewTicker(slowStart)
	defer look.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return false
		case <-s.xds.Published():
			return true
		case <-look.C:
		}
		if why := s.waitsFor(); why != said {
			s.logger.Info("the server waits before it serves proxies", "for", why)
			said = why
		}
	}
}

// waitsFor says what a start waits for.
func (s *server) waitsFor() string {
	var why []string
	for _, check := range s.checks {
		if check.Ready == nil {
			continue
		}
		if err := check.Ready(); err != nil {
			why = append(why, err.Error())
		}
	}
	if s.sources != nil && !s.source.HasSynced() {
		for _, of := range s.sources.States() {
			if of.Err != nil {
				why = append(why, fmt.Sprintf("source %s: %v", of.Name, of.Err))
			}
		}
	}
	return strings.Join(why, "; ")
}

// announce logs the one line that says the server is ready.
func (s *server) announce(ctx context.Context, api net.Listener) error {
	if !s.awaitFirst(ctx) {
		return nil
	}
	if _, err := s.statusCache.Await(ctx, 0); err != nil {
		return nil // ctx has ended
	}
	if err := s.secrets.Degraded(); err != nil {
		s.logger.Warn("the server does without some secrets", "err", err)
	}
	s.security.makeCertificate()
	store := "etcd" // an external etcd
	if s.o.Embedded != nil {
		store = s.o.Embedded.DataDir
	}
	scheme := "http://"
	if !loopback(api.Addr().String()) {
		scheme = "https://"
	}
	ports := []any{"api", scheme + api.Addr().String(), "xds", s.proxies.plain.Addr().String()}
	if s.proxies.secured != nil {
		ports = append(ports, "secure-xds", s.proxies.secured.Addr().String())
	}
	s.logger.Info("ready", append(ports, "store", store, "version", s.o.Version, "revision", s.source.Snapshot().Revision())...)
	return nil
}
