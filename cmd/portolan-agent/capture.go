package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/envoy"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

func newCapture(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "capture",
		Short: "Send the traffic of this machine through its sidecar",
		Long: `Send the traffic of this machine through its sidecar, by the section capture of the
agent's file. The rules are one table of nftables; those of others stay as they are.`,
	}
	command := func(use, short string, do func(c *cobra.Command, rules capture.Rules, filter capture.Firewall) error) *cobra.Command {
		return &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
			file, err := config.Read(env.config)
			if err != nil {
				return exit.With(exit.Data, err)
			}
			if file.Capture == nil {
				return exit.With(exit.Data, fmt.Errorf("%s: capture: is missing: add it to say which traffic is captured, {} for all", env.config))
			}
			return do(c, file.Rules(), firewall(file))
		}}
	}
	c.AddCommand(
		command("print", "Print the rules, for nft -f", func(_ *cobra.Command, rules capture.Rules, _ capture.Firewall) error {
			script, err := rules.Script()
			if err != nil {
				return exit.With(exit.Data, err)
			}
			_, err = fmt.Fprint(env.stdout, script)
			return err
		}),
		command("check", "Say whether the rules are in force; the exit code is 0 if they are", func(c *cobra.Command, rules capture.Rules, filter capture.Firewall) error {
			state, err := filter.Check(c.Context(), rules)
			if err != nil {
				return err
			}
			fmt.Fprintf(env.stdout, "The rules are %s.\n", state)
			if state != capture.InForce {
				return exit.With(exit.Data, errors.New("portolan-agent capture apply puts them in force"))
			}
			return nil
		}),
		command("apply", "Put the rules in force, in the place of older ones", func(c *cobra.Command, rules capture.Rules, filter capture.Firewall) error {
			if err := filter.Apply(c.Context(), rules); err != nil {
				return err
			}
			_, err := fmt.Fprintln(env.stdout, "The rules are in force.")
			return err
		}),
		&cobra.Command{Use: "remove", Short: "Take the rules away, also if the file is missing or has faults", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error {
			file, err := config.Read(env.config)
			if err != nil {
				file.State = config.DefaultState
			}
			if err := firewall(file).Remove(c.Context()); err != nil {
				return err
			}
			if _, err := callAgent(c.Context(), file.StatusSocket(), http.MethodGet, "/status"); err == nil {
				fmt.Fprintln(env.stdout, "The agent runs, and puts the rules back within seconds: stop it first, or take capture out of its file and start it again.")
				return nil
			}
			fmt.Fprintln(env.stdout, "The rules are away: connections pass by the proxy.")
			return nil
		}},
	)
	return c
}

func firewall(c config.Config) capture.Firewall {
	return capture.Firewall{Applied: filepath.Join(c.State, "capture.nft")}
}

// mayCapture returns an error if the agent cannot capture traffic as the user that it is. What the
// agent and its Envoy send must pass by, so both need a user of their own.
func mayCapture(c config.Config, noEnvoy bool) error {
	me := os.Geteuid()
	switch {
	case c.Capture == nil:
		return nil
	case me == 0:
		return errors.New("capture: the agent runs as root, and all that root sends would pass by the proxy: run it as a user of its own with the capability NET_ADMIN, as its unit does")
	}
	proxy := c.Rules().ProxyUser
	if user, err := capture.UserID(proxy); !noEnvoy && (err != nil || user != strconv.Itoa(me)) {
		return fmt.Errorf("capture.proxyUser: is %q, and the agent and its Envoy run as user %d: leave it out, or run the agent as that user", proxy, me)
	}
	return nil
}

// newCapture returns what keeps the rules in force, nil if the file has none.
func (a *agent) newCapture(noEnvoy bool) *capture.Keeper {
	c := a.config
	if c.Capture == nil {
		return nil
	}
	return &capture.Keeper{
		Firewall: firewall(c), Rules: a.rules(noEnvoy), WhenDown: c.Capture.WhenDown, Logger: a.logger,
		Live: func(ctx context.Context) bool { return envoy.Live(ctx, c.Envoy.Admin) },
	}
}

// captureAnew has the rules follow what they name: addresses of the machine, and its resolvers.
func (a *agent) captureAnew() {
	if a.capture != nil {
		a.capture.Replace(a.rules(a.envoy == nil))
	}
}

// rules are those of the machine as it is now. They exempt the agent.
func (a *agent) rules(noEnvoy bool) capture.Rules {
	rules := a.located.Load().Rules()
	if noEnvoy {
		rules.Except.Users = append(slices.Clone(rules.Except.Users), strconv.Itoa(os.Geteuid()))
	}
	return rules
}
