package objects

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/portolan-mesh/portolan/cmd/portolan/exit"
	"github.com/portolan-mesh/portolan/cmd/portolan/rest/batch"
)

// message is the user's comment on a change; the history keeps it.
type message string

func (m *message) register(c *cobra.Command) {
	c.Flags().StringVarP((*string)(m), "message", "m", "", "what there is to say about the change, for the history; one line")
}

func (m message) check() error {
	switch {
	case len(m) > batch.MaxMessage:
		return exit.With(exit.Usage, fmt.Errorf("--message has %d bytes, and may have %d", len(m), batch.MaxMessage))
	case !utf8.ValidString(string(m)) || strings.ContainsFunc(string(m), unicode.IsControl):
		return exit.With(exit.Usage, fmt.Errorf("--message %q is not one line of text", string(m)))
	}
	return nil
}

func (m message) about(operations []batch.Operation) batch.Batch {
	b := batch.New(operations...)
	b.Message = string(m)
	return b
}
