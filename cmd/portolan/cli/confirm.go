package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// RegisterYes adds --yes to a command that asks on a terminal, and refuses without a terminal.
func RegisterYes(c *cobra.Command, yes *bool) {
	c.Flags().BoolVarP(yes, "yes", "y", false, "do not ask")
}

// Confirm asks on the terminal whether to go ahead. If the answer is not yes, it returns an
// error that begins with nothing, as in "nothing was deleted".
func (e *Environment) Confirm(ctx context.Context, question, nothing string) error {
	fmt.Fprintf(e.Stderr, "%s [y/N] ", question)
	answer, err := e.Ask(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", nothing, err)
	}
	if answer != "y" && answer != "yes" {
		return errors.New(nothing + ": you did not say yes")
	}
	return nil
}

// Ask reads a line from the user, in lower case. Its goroutine ends with the line, or with the
// program if ctx ends first.
func (e *Environment) Ask(ctx context.Context) (string, error) {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(e.Stdin).ReadString('\n') // the end of input counts as an answer
		line <- text
	}()
	select {
	case text := <-line:
		return strings.ToLower(strings.TrimSpace(text)), nil
	case <-ctx.Done():
		fmt.Fprintln(e.Stderr)
		return "", errors.New("interrupted")
	}
}
