package discovery

import "time"

// Published is the part of Instance that a Publisher implements. A registry embeds it, and
// adds Run and HasSynced.
type Published interface {
	ServiceDiscovery
	Provider() Provider
	Cluster() string
	Fork() Fork
	AppendServiceHandler(ServiceHandler)
	AppendWorkloadHandler(WorkloadHandler)
}

// Publisher publishes the rows of one registry and calls its handlers. It suits a registry
// that does not follow the configuration: its Fork is that of its Index. The registry must
// close its Handlers when Run begins.
type Publisher struct {
	Index
	Handlers

	shard ShardKey
	xds   XDSUpdater
}

var _ Published = (*Publisher)(nil)

// NewPublisher returns a Publisher without rows.
func NewPublisher(shard ShardKey, xds XDSUpdater) *Publisher {
	return &Publisher{shard: shard, xds: xds}
}

// Provider implements Instance.
func (p *Publisher) Provider() Provider { return p.shard.Provider }

// Cluster implements Instance.
func (p *Publisher) Cluster() string { return p.shard.Cluster }

// Publish publishes the rows that differ, in the given order, and calls the service handlers
// after each. It counts changed services as the reason of a push. Call it on the worker.
func (p *Publisher) Publish(rows ...Row) {
	changed := 0
	for _, row := range rows {
		change := p.Index.Publish(p.xds, p.shard, row)
		if change.Services {
			changed++
		}
		p.ServicesChanged(change)
	}
	if changed > 0 {
		p.xds.ConfigUpdate(&PushRequest{
			Full: true, Reason: map[string]int{ReasonService: changed}, Start: time.Now(),
		})
	}
}
