package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// notifier tells the service manager how the agent is (sd_notify(3)).
type notifier struct {
	// unready says why the proxy takes no traffic, and unfit adds why the workload does not.
	unready func(context.Context) []string
	unfit   func([]string) []string
	send    func(state string) error
	// watchdog is how often the manager wants to hear of the agent; 0 for never.
	watchdog time.Duration
	logger   *slog.Logger

	status string // the last one sent
	ready  bool   // it was sent
}

// newNotifier returns the notifier of the agent, nil if no service manager asks for one.
func (a *agent) newNotifier() (*notifier, error) {
	if asked, err := daemon.SdNotify(false, "STATUS=starts"); !asked {
		return nil, err
	}
	watchdog, err := daemon.SdWatchdogEnabled(false)
	return &notifier{
		unready: a.unready, unfit: a.unfit, watchdog: watchdog, logger: a.logger,
		send: func(state string) error { _, err := daemon.SdNotify(false, state); return err },
	}, err
}

// How often the notifier looks before the agent is ready, and after.
const lookBefore, lookAfter = 100 * time.Millisecond, time.Second

// run tells until supply ends. It says STOPPING when ctx ends, and READY when the proxy is ready.
// The workload does not count for that: units that are ordered after the agent's, such as the
// workload's own, start after READY.
func (n *notifier) run(ctx, supply context.Context) {
	every := lookBefore
	stopping := ctx.Done()
	for {
		n.look(supply)
		if n.ready {
			every = lookAfter
		}
		if n.watchdog > 0 {
			every = min(every, n.watchdog/2)
		}
		select {
		case <-supply.Done():
			return
		case <-stopping:
			stopping = nil
			n.tell("STOPPING=1")
		case <-time.After(every):
		}
	}
}

// look looks once. What it asks every part of the agent answers, so that a hung agent does not feed
// the watchdog.
func (n *notifier) look(ctx context.Context) {
	unready := n.unready(ctx)
	if len(unready) == 0 && !n.ready {
		n.ready = true
		n.tell("READY=1")
	}
	if now := inOneLine(n.unfit(unready)); now != n.status {
		n.status = now
		n.tell("STATUS=" + now)
	}
	if n.watchdog > 0 {
		n.tell("WATCHDOG=1")
	}
}

func (n *notifier) tell(state string) {
	if err := n.send(state); err != nil {
		n.logger.Warn("the service manager is not told", "state", state, "err", err)
	}
}
