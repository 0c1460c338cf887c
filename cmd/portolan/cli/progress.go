package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// erase moves to the begin of the line, and erases it.
const erase = "\r\x1b[K"

// Live says whether and when a command that takes long tells on stderr how far it is: Shown on a
// terminal alone, and not before After, so that what is quick tells nothing.
type Live struct {
	Shown bool
	After time.Duration
}

// Progress is one line on a terminal that says how far a command is. It replaces itself, has the
// time since it began, and leaves nothing behind. Its methods may be called by several goroutines.
type Progress struct {
	live Live
	out  io.Writer
	now  func() time.Time

	mu    sync.Mutex // guards the fields below
	text  string     // empty for none
	began time.Time  // when there first was a text
	timer *time.Timer
	shown bool // whether After is over
	drawn bool // whether the line is on the terminal
}

// Progress returns a line that is not shown yet.
func (e *Environment) Progress() *Progress {
	return &Progress{live: e.Live, out: e.Stderr, now: e.Now, shown: e.Live.After == 0}
}

// Tell replaces the line. The time that has passed is added to the text, then and every second.
func (p *Progress) Tell(text string) {
	if !p.live.Shown {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = text
	if p.began.IsZero() {
		p.began = p.now()
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(p.wait(), p.tick)
	}
	if p.shown {
		p.draw()
	}
}

// wait returns when to draw the line next.
func (p *Progress) wait() time.Duration {
	if p.shown {
		return tick
	}
	return p.live.After
}

// tick is how often a line shows the time anew.
const tick = time.Second

func (p *Progress) tick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text == "" { // cleared in the meantime
		return
	}
	p.shown = true
	p.draw()
	p.timer.Reset(tick)
}

func (p *Progress) draw() {
	line := []rune(p.text + "  " + RoundDuration(p.now().Sub(p.began)).String())
	if width := widthOf(p.out); width > 1 && len(line) >= width {
		line = line[:width-1] // a line that wraps cannot be erased
	}
	fmt.Fprint(p.out, erase+string(line))
	p.drawn = true
}

// Clear erases the line, before something else is printed or at the end. Tell shows it again.
func (p *Progress) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text = ""
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	if p.drawn {
		fmt.Fprint(p.out, erase)
		p.drawn = false
	}
}

// widthOf returns the number of columns of a terminal, 0 if that is unknown.
func widthOf(out io.Writer) int {
	file, ok := out.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(file.Fd()))
	if err != nil {
		return 0
	}
	return width
}

// RoundDuration rounds a duration for people: to milliseconds below a second, else to tenths of a
// second.
func RoundDuration(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Millisecond)
	}
	return d.Round(100 * time.Millisecond)
}
