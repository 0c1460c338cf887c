package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"strings"
	"time"

	"github.com/portolan-mesh/portolan/storage/etcd/member"
)

// childArg makes this program run the etcd member.
const childArg = "member"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) == 2 && os.Args[1] == childArg {
		exit(member.RunChild(context.WithoutCancel(ctx), slog.New(slog.DiscardHandler), func(string) {}))
		return
	}
	if len(os.Args) == 3 && os.Args[1] == plainArg {
		exit(runPlain(os.Args[2]))
		return
	}
	o := options{}
	flag.IntVar(&o.objects, "objects", 100_000, "how many objects the cache is measured with")
	flag.IntVar(&o.pairs, "pairs", 32, "how many slices each side of a ratio gets")
	flag.DurationVar(&o.slice, "slice", 250*time.Millisecond, "how long a slice of single changes is")
	flag.StringVar(&o.only, "only", "", "measure only these, comma separated: idle,update,cache")
	flag.StringVar(&o.server, "server", "", "a binary of portolan, to measure what a server takes that has nothing to do")
	flag.StringVar(&o.dir, "dir", "", "where the data directory is made; the default is that for temporary files")
	profile := flag.String("cpuprofile", "", "write a profile of this process, both sides of all ratios in it")
	strict := flag.Bool("strict", false, "fail where a target is missed")
	flag.Parse()
	stopProfile, err := profileTo(*profile)
	if err != nil {
		exit(err)
	}
	report, err := run(ctx, o)
	err = errors.Join(err, stopProfile())
	report.print(os.Stdout)
	if err == nil && *strict && report.missed() {
		err = errors.New("a target is missed")
	}
	exit(err)
}

// profileTo starts a CPU profile if file is not empty.
func profileTo(file string) (stop func() error, err error) {
	if file == "" {
		return func() error { return nil }, nil
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error { pprof.StopCPUProfile(); return f.Close() }, nil
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "benchstore:", err)
		os.Exit(1)
	}
}

// options say what is measured, and how much of it.
type options struct {
	objects, pairs int
	slice          time.Duration
	only, dir      string
	server         string
}

func (o options) selected(section string) bool {
	if o.only == "" {
		return true
	}
	for one := range strings.SplitSeq(o.only, ",") {
		if one == section {
			return true
		}
	}
	return false
}

// run measures, each section on a member of its own. If it fails, the report has what was
// measured before.
func run(ctx context.Context, o options) (*report, error) {
	r := &report{}
	if o.selected("idle") {
		fmt.Fprintln(os.Stderr, "measuring: idle")
		if err := measureIdle(ctx, o, r); err != nil {
			return r, fmt.Errorf("idle: %w", err)
		}
	}
	for _, section := range []struct {
		name    string
		measure func(context.Context, *bench) error
	}{{"update", measureUpdates}, {"cache", measureCache}} {
		if !o.selected(section.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "measuring: %s\n", section.name)
		if err := onMember(ctx, o, func(b *bench) error { b.report = r; return section.measure(ctx, b) }); err != nil {
			return r, fmt.Errorf("%s: %w", section.name, err)
		}
	}
	return r, nil
}

// line is one figure of the report. A line without a limit is only information.
type line struct {
	what, plain, portolan string
	ratio                 float64 // 0 for none
	limit                 limit
}

// limit bounds a ratio: from above, or from below if least is set.
type limit struct {
	ratio float64
	least bool
}

func (l limit) String() string {
	switch {
	case l.ratio == 0:
		return ""
	case l.least:
		return fmt.Sprintf(">= %.2fx", l.ratio)
	}
	return fmt.Sprintf("<= %.2fx", l.ratio)
}

func (l line) missed() bool {
	return l.limit.ratio != 0 && (l.limit.least && l.ratio < l.limit.ratio || !l.limit.least && l.ratio > l.limit.ratio)
}

// report has the lines of the table, and the text above it.
type report struct {
	notes []string
	lines []line
}

func (r *report) note(format string, args ...any) {
	r.notes = append(r.notes, fmt.Sprintf(format, args...))
}

func (r *report) add(l line) { r.lines = append(r.lines, l) }

func (r *report) missed() bool {
	for _, l := range r.lines {
		if l.missed() {
			return true
		}
	}
	return false
}

// print writes the table in Markdown.
func (r *report) print(w io.Writer) {
	fmt.Fprintf(w, "%d cores, %s, load %s\n", runtime.NumCPU(), runtime.Version(), load())
	for _, note := range r.notes {
		fmt.Fprintln(w, note)
	}
	const row = "| %-44s | %-24s | %-24s | %-6s | %-8s | %-6s |\n"
	fmt.Fprintf(w, "\n"+row, "what", "plain etcd client", "Portolan", "ratio", "target", "")
	fmt.Fprintln(w, "|"+strings.Repeat("---|", 6))
	for _, l := range r.lines {
		ratio, verdict := "", ""
		if l.ratio != 0 {
			ratio = fmt.Sprintf("%.2fx", l.ratio)
		}
		switch {
		case l.missed():
			verdict = "MISSED"
		case l.limit.ratio != 0:
			verdict = "OK"
		}
		fmt.Fprintf(w, row, l.what, l.plain, l.portolan, ratio, l.limit, verdict)
	}
}

// load returns the load of the machine, if the system reports it.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}
