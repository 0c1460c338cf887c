package serve

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/portolan-mesh/portolan/cache/statuses"
)

// setReplicas tells the port which other servers there are.
func (p *proxyPort) setReplicas(r replicas, metrics prometheus.Registerer) error {
	p.replicas = r
	return metrics.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "portolan_replicas", Help: "Servers of the store that report to one another, this one among them.",
	}, func() float64 { return float64(1 + len(r.proxiesOfOthers())) }))
}

// replicas knows the servers of a store, as they report to one another.
type replicas struct {
	id       string // id of this server
	statuses *statuses.Cache
}

// proxiesOfOthers returns how many proxies each of the other servers has.
func (r replicas) proxiesOfOthers() []int {
	facts, _ := r.statuses.Reports()
	if facts == nil {
		return nil
	}
	var out []int
	for _, report := range facts.Replicas.All() {
		if report.ID != r.id {
			out = append(out, report.Proxies)
		}
	}
	return out
}

// balance disconnects a few proxies at a time while this server has many more than the average
// of the others, so that they connect there.
func (p *proxyPort) balance(ctx context.Context) error {
	if p.balanceInterval == 0 {
		<-ctx.Done()
		return nil
	}
	ticker := time.NewTicker(p.balanceInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		own := p.xds.Connections()
		if n := countToDisconnect(own, p.replicas.proxiesOfOthers()); n > 0 {
			p.logger.Info("moving proxies to other servers, which have fewer", "proxies", own, "moved", p.xds.Move(n))
		}
	}
}

// countToDisconnect returns how many proxies a server disconnects at a time: a tenth of its
// excess over the average of all servers. It is 0 unless the excess is more than two, and more
// than a fifth of the average.
func countToDisconnect(own int, others []int) int {
	sum, servers := own, 1+len(others)
	for _, n := range others {
		sum += n
	}
	mean := (sum + servers - 1) / servers
	over := own - mean
	if servers == 1 || over <= max(2, mean/5) {
		return 0
	}
	return (over + 9) / 10
}
