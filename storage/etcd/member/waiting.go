package member

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// waitingInterval is how often a member that waits for others reports so. After
// waitingSilence without a report it counts as hung.
const (
	waitingInterval = time.Second
	waitingSilence  = time.Minute
)

// waitingFor says what a member that is not ready waits for.
func waitingFor(ctx context.Context, etcd *embed.Etcd, c *Cluster) string {
	away := c.awayPeers(ctx, etcd)
	switch {
	case len(away) > 0:
		return "waiting for the other members of the store: " + strings.Join(away, ", ")
	case etcd.Server.Leader() == 0:
		return "waiting for the members of the store to elect a leader"
	}
	return "waiting for the member to catch up with the others"
}

// awayPeers returns the other members that do not answer, each with the reason.
func (c *Cluster) awayPeers(ctx context.Context, etcd *embed.Etcd) []string {
	client, err := c.peerClient()
	if err != nil {
		return []string{err.Error()}
	}
	defer client.CloseIdleConnections()
	var asking sync.WaitGroup
	var mu sync.Mutex
	var away []string
	for _, m := range etcd.Server.Cluster().Members() {
		if m.ID == etcd.Server.MemberID() {
			continue
		}
		asking.Go(func() {
			if err := askPeer(ctx, client, m); err != nil {
				mu.Lock()
				defer mu.Unlock()
				away = append(away, fmt.Sprintf("%s at %s: %v", namesOf([]*membership.Member{m})[0], strings.Join(m.PeerURLs, ","), err))
			}
		})
	}
	asking.Wait()
	slices.Sort(away)
	return away
}

// peerClient returns a client that calls peer URLs as this member does.
func (c *Cluster) peerClient() (*http.Client, error) {
	t := &http.Transport{}
	if c.TLS != nil {
		var err error
		if t.TLSClientConfig, err = c.TLS.Config(); err != nil {
			return nil, err
		}
	}
	return &http.Client{Transport: t, Timeout: time.Second}, nil
}

// askPeer returns nil if a member listens and accepts this one as a peer.
func askPeer(ctx context.Context, client *http.Client, m *membership.Member) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.PeerURLs[0]+"/version", nil)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		if wrapped, ok := err.(*url.Error); ok {
			err = wrapped.Err
		}
		return err
	}
	return answer.Body.Close()
}
