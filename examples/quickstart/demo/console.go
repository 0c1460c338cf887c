package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// console writes for a person. On a terminal it keeps one line below the text up to date.
type console struct {
	out      io.Writer
	terminal bool

	mu    sync.Mutex // guards out and what follows
	live  func() string
	steps int
}

func newConsole(out *os.File) *console {
	info, err := out.Stat()
	return &console{out: out, terminal: err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"}
}

const clearLine = "\r\x1b[K"

// write prints lines above the live line.
func (c *console) write(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.terminal {
		text = clearLine + text
	}
	_, _ = io.WriteString(c.out, text)
	c.refresh()
}

// refresh is called with mu held.
func (c *console) refresh() {
	if c.terminal && c.live != nil {
		_, _ = io.WriteString(c.out, clearLine+"   "+c.live())
	}
}

// follow shows a live line, updated twice a second, until end is called.
func (c *console) follow(line func() string) (end func()) {
	c.mu.Lock()
	c.live = line
	c.mu.Unlock()
	stop := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				c.mu.Lock()
				c.refresh()
				c.mu.Unlock()
			}
		}
	})
	return func() {
		close(stop)
		running.Wait()
		c.mu.Lock()
		c.live = nil
		c.mu.Unlock()
		c.write("")
	}
}

// step begins a numbered step.
func (c *console) step(format string, args ...any) {
	c.steps++
	c.write(fmt.Sprintf("\n%2d  %s\n", c.steps, fmt.Sprintf(format, args...)))
}

// say writes a line of text.
func (c *console) say(format string, args ...any) {
	c.write("    " + fmt.Sprintf(format, args...) + "\n")
}

// typed prints a command in the form that a user would type.
func (c *console) typed(command string) { c.write("    $ " + command + "\n") }

// quote writes the output of a command.
func (c *console) quote(text string) {
	text = strings.TrimRight(text, "\n")
	if text != "" {
		c.write("      " + strings.ReplaceAll(text, "\n", "\n      ") + "\n")
	}
}
