package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/cmd/portolan-agent/doctor"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

func newDoctor(env *environment) *cobra.Command {
	output := ""
	c := &cobra.Command{
		Use:   "doctor",
		Short: "Look at all that the agent depends on, and say what to do",
		Long: `Look at all that the agent depends on, and say what to do: the file, the certificate,
names, servers and their clock, the Envoy, ports, the disk and the packet filter. It
changes nothing. Run it as root, or as the user of the agent.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := outputFlag(output); err != nil {
				return err
			}
			file, err := config.Read(env.config)
			if err != nil {
				return exit.With(exit.Data, err)
			}
			var running Status
			body, err := env.ask(c.Context(), "GET", "/status")
			if err == nil {
				err = json.Unmarshal(body, &running)
			}
			found := doctor.Look(c.Context(), doctor.Options{Config: file, Running: err == nil, Registration: running.Registration, Faults: running.Faults, Firewall: firewall(file)})
			if output == "json" {
				err = json.NewEncoder(env.stdout).Encode(found)
			} else {
				err = printFindings(env.stdout, found)
			}
			for _, f := range found {
				if f.Level == doctor.Fail && err == nil {
					err = exit.Quietly(exit.Findings, "something is at fault")
				}
			}
			return err
		},
	}
	c.Flags().StringVarP(&output, "output", "o", "", "json for a program")
	return c
}

func printFindings(out io.Writer, found []doctor.Finding) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	for _, f := range found {
		fmt.Fprintf(w, "%s\t%s\t%s\n", f.Level, f.What, f.Text)
		if f.Do != "" {
			fmt.Fprintf(w, "\t\t  %s\n", f.Do)
		}
	}
	return w.Flush()
}
