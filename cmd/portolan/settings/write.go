package settings

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v3"

	"github.com/portolan-mesh/portolan/cmd/portolan/help"
)

// Write writes the flags as a file that Read reads, under the headings of the help. Flags that are
// not set are comments, with their defaults.
func (f Fields) Write(w io.Writer) error {
	for i, group := range help.Headings(f.Flags) {
		if i > 0 {
			fmt.Fprintln(w)
		}
		title := group.Title
		if title == help.NoHeading {
			title = f.Shared
		}
		fmt.Fprintf(w, "## %s\n", title)
		var err error
		group.Flags.VisitAll(func(flag *pflag.Flag) {
			if err == nil {
				err = write(w, flag)
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func write(w io.Writer, flag *pflag.Flag) error {
	value := yaml.Node{Kind: yaml.ScalarNode, Value: flag.Value.String()}
	if list, ok := flag.Value.(pflag.SliceValue); ok {
		value = yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
		for _, item := range list.GetSlice() {
			value.Content = append(value.Content, quoted(item))
		}
	} else if _, typed := scalars[flag.Value.Type()]; !typed {
		value = *quoted(flag.Value.String())
	}
	text, err := yaml.Marshal(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{{Kind: yaml.ScalarNode, Value: flag.Name}, &value}})
	if err != nil {
		return err
	}
	if !flag.Changed {
		text = append([]byte("# "), text...)
	}
	_, err = w.Write(text)
	return err
}

// quoted returns text that stays text, in quotes where it needs them.
func quoted(text string) *yaml.Node {
	node := &yaml.Node{}
	node.SetString(text)
	if strings.ContainsAny(text, "\n\r") {
		node.Style = yaml.DoubleQuotedStyle
	}
	return node
}
