package objects

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/cli"
	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
)

// labelColumns are columns of a table with the labels of the objects.
type labelColumns struct {
	keys []string // -L
	all  bool     // --show-labels
}

func (l *labelColumns) register(c *cobra.Command) {
	c.Flags().StringSliceVarP(&l.keys, "label-columns", "L", nil, "add a column with each of these labels, such as app,version")
	c.Flags().BoolVar(&l.all, "show-labels", false, "add a column with all labels")
}

func (l *labelColumns) asked() bool { return l.all || len(l.keys) > 0 }

func (l *labelColumns) check() error {
	for _, key := range l.keys {
		if key == "" {
			return exit.With(exit.Usage, errors.New("-L: a label has no name: give names such as app,version"))
		}
	}
	return nil
}

// headers returns the names of the labels, in capitals and without what is before a slash.
func (l *labelColumns) headers() []string {
	out := cli.MapSlice(l.keys, func(key string) string { return strings.ToUpper(key[strings.LastIndex(key, "/")+1:]) })
	if l.all {
		out = append(out, "LABELS")
	}
	return out
}

func (l *labelColumns) cells(labels map[string]string) []string {
	out := cli.MapSlice(l.keys, func(key string) string { return labels[key] })
	if l.all {
		out = append(out, cli.Pairs(labels, true))
	}
	return out
}
