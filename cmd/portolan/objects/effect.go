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
		fmt.Fprint(e.Stdout, text)
	}
	if result.Effect == nil {
		return nil
	}
	fmt.Fprintln(e.Stdout, affectedProxies(*result.Effect))
	return e.printResources(*result.Effect)
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

// namedProxies is how many proxies a dry run lists by name.
const namedProxies = 10

// affectedProxies returns one line about the proxies for which a change makes a difference.
func affectedProxies(effect effect.Effect) string {
	text := fmt.Sprintf("No proxy is concerned, of %d connected.", effect.Proxies)
	if effect.Concerned > 0 {
		names := cli.MapSlice(effect.Nodes[:min(len(effect.Nodes), namedProxies)], cli.NodeName)
		text = fmt.Sprintf("Concerned: %d of %d proxies: %s", effect.Concerned, effect.Proxies, strings.Join(names, ", "))
		if more := effect.Concerned - len(names); more > 0 {
			text += fmt.Sprintf(", and %d more", more)
		}
		text += "."
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
		fmt.Fprint(e.Stdout, text)
	}
	return nil
}
