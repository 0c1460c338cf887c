package member

import (
	"sync"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"google.golang.org/grpc"
)

// grpcServers are the gRPC servers of an etcd. Closing etcd itself waits up to 7 seconds for
// streams to end, and the streams of watches and lease keep-alives do not end.
// https://github.com/etcd-io/etcd/pull/8267
type grpcServers struct {
	mu      sync.Mutex // guards servers
	servers []*grpc.Server
}

// callsWait is how long calls under way may take after stopGracefully.
const callsWait = 500 * time.Millisecond

// add is etcd's ServiceRegister, which it calls with each server.
func (d *grpcServers) add(s *grpc.Server) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.servers = append(d.servers, s)
}

// handOverWait is how long another member may take to lead.
const handOverWait = time.Second

// handOverLeadership hands over the leadership, if this member has it, so that the remaining
// members need no election.
func handOverLeadership(etcd *embed.Etcd) {
	left := make(chan struct{})
	go func() {
		defer close(left)
		_ = etcd.Server.TryTransferLeadershipOnShutdown() // if it fails, there is an election
	}()
	select {
	case <-left:
	case <-time.After(handOverWait):
	}
}

// stopGracefully ends all servers: calls under way get a moment to finish, and then streams are
// cut.
func (d *grpcServers) stopGracefully() {
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

// stopAtOnce ends all servers at once, with the calls under way.
func (d *grpcServers) stopAtOnce() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.servers {
		s.Stop()
	}
}
