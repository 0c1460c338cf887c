package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// describe writes what the binary says of itself, as a manual page and completions. It builds the
// binary for this machine, since no other runs here.
func (r release) describe(name, tags, ldflags string) error {
	host := product{name: name, arch: runtime.GOARCH, release: r}
	if err := host.build(tags, ldflags); err != nil {
		return err
	}
	binary := host.binary()
	for _, shell := range []string{"bash", "zsh", "fish"} {
		text, err := exec.Command(binary, "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("%s completion %s: %w", name, shell, err)
		}
		if err := os.WriteFile(filepath.Join(r.stage, name+"."+shell), text, 0o644); err != nil {
			return err
		}
	}
	page := &bytes.Buffer{}
	fmt.Fprintf(page, ".TH %s 1 %s \"%s %s\" \"User Commands\"\n.SH NAME\n", strings.ToUpper(name), r.date.Format("2006-01-02"), name, r.packageVersion())
	if err := writeCommand(page, binary, name); err != nil {
		return err
	}
	if err := r.writeGzip(name+".1.gz", page.Bytes()); err != nil {
		return err
	}
	log := fmt.Sprintf("%s (%s) unstable; urgency=medium\n\n  * Built from commit %s.\n\n -- %s  %s\n", name, r.packageVersion(), r.revision, maintainer, r.date.Format("Mon, 02 Jan 2006 15:04:05 -0700"))
	if err := r.writeGzip(name+".changelog.gz", []byte(log)); err != nil {
		return err
	}
	own, err := filepath.Glob(filepath.Join(r.files, name, "*.5"))
	for _, file := range own {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := r.writeGzip(filepath.Base(file)+".gz", text); err != nil {
			return err
		}
	}
	return err
}

// writeGzip writes a compressed file without a time or a name in it.
func (r release) writeGzip(name string, text []byte) error {
	out := &bytes.Buffer{}
	w, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.stage, name), out.Bytes(), 0o644)
}

// commandLine is a line of a list of commands, and flagLine one of a list of flags.
var (
	commandLine = regexp.MustCompile(`^  ([a-z][a-z0-9-]*) +\S`)
	flagLine    = regexp.MustCompile(`^ {2,6}(-.*?) {3,}(\S.*)$`)
)

// writeCommand writes the help of a command, and of those under it, as sections of a manual page.
func writeCommand(w *bytes.Buffer, binary, path string) error {
	args := strings.Fields(path)
	help, err := exec.Command(binary, append(args[1:len(args):len(args)], "--help")...).Output()
	if err != nil {
		return fmt.Errorf("%s --help: %w", path, err)
	}
	lines := strings.Split(strings.TrimSpace(string(help)), "\n")
	if len(args) == 1 {
		fmt.Fprintf(w, "%s \\- %s\n.SH DESCRIPTION\n", roff(path), roff(strings.TrimSuffix(lines[0], ".")))
	} else {
		fmt.Fprintf(w, ".SH %s\n", strings.ToUpper(roff(path)))
	}
	var under []string
	commands := false
	for _, line := range lines {
		flag, command := flagLine.FindStringSubmatch(line), commandLine.FindStringSubmatch(line)
		switch {
		case line == "":
			w.WriteString(".PP\n")
		case flag != nil:
			fmt.Fprintf(w, ".TP\n.B %s\n%s\n", roff(flag[1]), roff(flag[2]))
		case strings.HasPrefix(line, " "):
			fmt.Fprintf(w, ".nf\n%s\n.fi\n", roff(line))
		case strings.HasSuffix(line, ":"):
			fmt.Fprintf(w, ".SS %s\n", roff(strings.TrimSuffix(line, ":")))
		default:
			fmt.Fprintf(w, "%s\n", roff(line))
		}
		switch {
		case line == "Available Commands:":
			commands = true
		case line == "":
			commands = false
		case commands && command != nil && command[1] != "completion" && command[1] != "help":
			under = append(under, path+" "+command[1])
		}
	}
	for _, command := range under {
		if err := writeCommand(w, binary, command); err != nil {
			return err
		}
	}
	return nil
}

// roff escapes a text: no part of it is a request of the typesetter.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		return `\&` + text
	}
	return text
}
