package objects

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
	"github.com/portolan-mesh/portolan/storage/config"
	"github.com/portolan-mesh/portolan/xds/admin/effect"
)

// printEffect prints what a dry run foresees: how each object would differ, which proxies are
// concerned, and which of their resources.
func (e *environment) printEffect(documents []config.Document, result *batch.Result) error {
	for i, r := range result.Results {
		text, err := foreseen(documents[i].Config.Key().String(), r.Before, r.After)
		if err != nil {
			return err
		}
		if err := cli.WriteDiff(e.Stdout, text); err != nil {
			return err
		}
	}
	if result.Effect == nil {
		return nil
	}
	fmt.Fprintln(e.Stdout, affectedProxies(*result.Effect))
	for _, line := range affectedCalls(*result.Effect) {
		fmt.Fprintln(e.Stdout, line)
	}
	return e.printResources(*result.Effect)
}

// affectedCalls returns a line about each AuthorizationPolicy, and one about the calls that would
// newly be refused.
func affectedCalls(effect effect.Effect) (out []string) {
	some := false
	for _, p := range effect.Policies {
		some = some || p.Workloads > 0
		out = append(out, fmt.Sprintf("%s selects %s%s.", p.Policy, cli.CountOf(p.Workloads, "connected workload"), firstOf(p.Workloads, cli.MapSlice(p.Nodes, cli.NodeName))))
	}
	c := effect.Calls
	switch {
	case c == nil:
		return out
	case c.Foreseen == 0 && some:
		return append(out, "No call to these workloads is foreseen: this says nothing of who would be refused.")
	}
	of := cli.CountOf(c.Foreseen, "foreseen call")
	if c.More {
		of = "the first " + of
	}
	switch {
	case c.Refused > 0:
		out = append(out, fmt.Sprintf("Newly refused: %d of %s%s.", c.Refused, of, firstOf(c.Refused, c.First)))
	case c.Open == 0:
		out = append(out, fmt.Sprintf("No call would newly be refused, of %s.", of))
	}
	if c.Open > 0 {
		out = append(out, fmt.Sprintf("Not known: %d of %s, as the caller names no service account%s.", c.Open, of, firstOf(c.Open, c.FirstOpen)))
	}
	return out
}

// firstOf names the first of a number of things.
func firstOf(all int, first []string) string {
	if len(first) == 0 {
		return ""
	}
	first = first[:min(len(first), namedProxies)]
	text := ": " + strings.Join(first, ", ")
	if more := all - len(first); more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// foreseen returns how an object or resource would differ. Both sides are JSON; an empty side
// means that it does not exist.
func foreseen(name string, before, after json.RawMessage) (string, error) {
	labels, texts := [2]string{name, name}, [2]string{}
	for i, side := range []json.RawMessage{before, after} {
		if len(side) == 0 {
			labels[i] = cli.Nowhere
			continue
		}
		text, err := config.JSONToYAML(side)
		if err != nil {
			return "", fmt.Errorf("write %s as YAML: %w", name, err)
		}
		texts[i] = string(text)
	}
	return udiff.Unified(labels[0], labels[1], texts[0], texts[1]), nil
}

// namedProxies is how many proxies, and how many calls, a dry run lists by name.
const namedProxies = 10

// affectedProxies returns one line about the proxies for which a change makes a difference.
func affectedProxies(effect effect.Effect) string {
	text := fmt.Sprintf("No proxy is concerned, of %d connected.", effect.Proxies)
	if effect.Concerned > 0 {
		text = fmt.Sprintf("Concerned: %d of %d proxies%s.", effect.Concerned, effect.Proxies, firstOf(effect.Concerned, cli.MapSlice(effect.Nodes, cli.NodeName)))
	}
	if len(effect.Phases) > 0 {
		text += fmt.Sprintf(" Modes of %s change in phases: this is the difference after the last.", cli.FormatList(effect.Phases, false))
	}
	if effect.Elsewhere > 0 {
		text += fmt.Sprintf(" Other servers have %d more, which were not looked at.", effect.Elsewhere)
	}
	return text
}

// printResources lists the resources of proxies that would change, and how.
func (e *environment) printResources(effect effect.Effect) error {
	var rows [][]string
	for _, r := range effect.Resources {
		proxies := "1 proxy"
		if r.Proxies != 1 {
			proxies = fmt.Sprintf("%d proxies", r.Proxies)
		}
		rows = append(rows, []string{"  " + r.Type, r.Name, r.Change, proxies})
	}
	if err := cli.WriteTable(e.Stdout, rows); err != nil {
		return err
	}
	if effect.Omitted > 0 {
		fmt.Fprintf(e.Stdout, "  and %d more\n", effect.Omitted)
	}
	for _, r := range effect.Resources {
		text, err := foreseen(r.Type+" "+r.Name, r.Before, r.After)
		if err != nil {
			return err
		}
		if err := cli.WriteDiff(e.Stdout, text); err != nil {
			return err
		}
	}
	return nil
}
