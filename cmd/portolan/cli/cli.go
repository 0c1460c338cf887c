package cli

import (
	"io"
	"os"
	"os/user"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/term"

	"github.com/portolan-mesh/portolan/storage/schema"
)

// Environment holds the inputs and outputs of a command.
type Environment struct {
	Version        string // of this binary
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Now            func() time.Time
	Schemas        schema.Set // the kinds that commands handle
	Terminal       bool       // whether there is a user to ask
	Live           Live       // whether to tell how far a command is
	user           string     // the local user who runs the program
	command        string     // the command that runs, such as "apply"
	Server         string     // --server
	Context        string     // --context
	Files          ClientFiles
	Namespace      string        // namespace of objects and commands that name none
	Timeout        time.Duration // --request-timeout
	Credentials    Proof
	hidden         []string      // global flags that the command replaces by its own
	Patience       time.Duration // how long a command waits for a server that refuses connections
	warned         *sync.Map     // the warnings that were printed, which copies share
}

// With returns a changed copy, as for a part of a command that calls another server or prints
// elsewhere.
func (e *Environment) With(change func(*Environment)) *Environment {
	out := *e
	change(&out)
	return &out
}

// Screen says whether the output goes to a terminal.
func (e *Environment) Screen() bool { return isTerminal(e.Stdout) }

func isTerminal(stream any) bool {
	file, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// LocalUser returns the name of the user who runs the program, as far as it fits a header.
func LocalUser() string {
	u, err := user.Current()
	if err != nil {
		return ""
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune(`._-@+\`, r) {
			return r
		}
		return '_'
	}, u.Username)
}

// Agent returns the User-Agent of the program: version, command, and the local user, which is
// a claim without proof.
func (e *Environment) Agent() string {
	words := []string{"portolan/" + e.Version}
	if e.command != "" {
		words = append(words, e.command)
	}
	if e.user != "" {
		words = append(words, "("+e.user+")")
	}
	return strings.Join(words, " ")
}
