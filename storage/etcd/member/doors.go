package member

import (
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// doors are the gRPC servers of an etcd. Closing etcd itself waits for up to 7
// seconds for streams to end, and those that keep leases alive, or watch, do not.
type doors struct {
	mu      sync.Mutex // guards servers
	servers []*grpc.Server
}

// callsWait is how long calls under way may take when the doors shut.
const callsWait = 500 * time.Millisecond

// add is etcd's ServiceRegister, which it calls with each server.
func (d *doors) add(s *grpc.Server) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.servers = append(d.servers, s)
}

// handOverWait is how long another member may take to lead.
const handOverWait = time.Second

// leave has another member lead, if this one does, so that those who stay need
// not wait for an election.
func leave(etcd *embed.Etcd) {
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = etcd.Server.TryTransferLeadershipOnShutdown() // then there is an election
	}()
	select {
	case <-left:
	case <-time.After(handOverWait):
	}
}

// shut ends all servers: calls under way are let go on for a moment, and streams
// are cut then.
func (d *doors) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	var shutting sync.WaitGroup
	for _, s := range d.servers {
		cut := time.AfterFunc(callsWait, s.Stop)
		shutting.Go(func() {
			s.GracefulStop()
			cut.Stop()
		})
	}
	shutting.Wait()
}

// slam ends all servers at once, with the calls under way.
func (d *doors) slam() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.servers {
		s.Stop()
	}
}
