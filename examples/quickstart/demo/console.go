package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/term"
)

// console writes for a person. On a terminal it keeps one line below the text up to date.
type console struct {
	terminal bool
	steps    int // number of steps that have begun
}

func newConsole() *console {
	return &console{terminal: term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("TERM") != "dumb"}
}

func (c *console) step(format string, args ...any) {
	c.steps++
	c.write(fmt.Sprintf("\n%2d  %s\n", c.steps, fmt.Sprintf(format, args...)))
}

func (c *console) say(format string, args ...any) {
	c.write("    " + fmt.Sprintf(format, args...) + "\n")
}

// typed prints a command that a user could type.
func (c *console) typed(command string) { c.say("$ %s", command) }

// quote prints the output of a command.
func (c *console) quote(text string) {
	for line := range strings.Lines(text) {
		c.write("      " + line)
	}
}

// live brings the line below the text up to date, on a terminal. The line never gets shorter.
func (c *console) live(traffic []*counter) {
	if !c.terminal || traffic == nil {
		return
	}
	line := "\r  "
	for _, x := range traffic {
		sum := x.since(tally{})
		line += fmt.Sprintf(" [%s %d answered, %d failed]", x.name, sum.requests-sum.failed, sum.failed)
	}
	fmt.Print(line)
}

// write writes text in the place of the live line.
func (c *console) write(text string) {
	if c.terminal {
		text = "\r\x1b[K" + text
	}
	fmt.Print(text)
}
