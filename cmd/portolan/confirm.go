package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// registerYes adds the flag of commands that ask on a terminal, and refuse without one.
func registerYes(c *cobra.Command, yes *bool) {
	c.Flags().BoolVarP(yes, "yes", "y", false, "do not ask")
}

// confirm asks on the terminal whether to go ahead; the error says what is not done, as
// in "nothing was deleted".
func (e *environment) confirm(ctx context.Context, question, nothing string) error {
	fmt.Fprintf(e.stderr, "%s [y/N] ", question)
	answer, err := e.ask(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", nothing, err)
	}
	if answer != "y" && answer != "yes" {
		return errors.New(nothing + ": you did not say yes")
	}
	return nil
}

// ask reads a line from the user, in lower case. Its goroutine ends with the
// line, or with the program where the user gives up instead.
func (e *environment) ask(ctx context.Context) (string, error) {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(e.stdin).ReadString('\n') // the end of input is an answer too
		line <- text
	}()
	select {
	case text := <-line:
		return strings.ToLower(strings.TrimSpace(text)), nil
	case <-ctx.Done():
		fmt.Fprintln(e.stderr)
		return "", errors.New("interrupted")
	}
}
