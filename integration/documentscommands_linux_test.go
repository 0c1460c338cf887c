package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/integration/processtest"
)

// shell runs the commands of documents as a user types them. The programs of `make build tools`
// are on its PATH, and all ports of its network are free.
type shell struct {
	t   *testing.T
	n   *namespace
	tmp string   // stands for /tmp
	dir string   // where commands run
	env []string // the environment of commands, with the variables that earlier ones set
	// running are the programs in the background, by name.
	running map[string][]*processtest.Process
}

func newShell(t *testing.T) *shell {
	t.Helper()
	envoy := needEnvoy(t)
	needNetworks(t, "ip")
	s := &shell{t: t, n: newNamespace(t, "document"), tmp: t.TempDir(), dir: ".."}
	s.env = []string{
		"PATH=" + filepath.Dir(binary) + ":" + filepath.Dir(envoy) + ":" + os.Getenv("PATH"),
		"PORTOLAN_CONFIG=" + filepath.Join(s.tmp, "contexts.yaml"),
	}
	t.Cleanup(s.end)
	return s
}

// end kills what runs in the network, such as the program that `go run` started.
func (s *shell) end() {
	out, err := exec.Command("ip", "netns", "pids", s.n.name).Output()
	if err != nil {
		s.t.Errorf("list the processes of %s: %v", s.n.name, err)
	}
	for _, field := range strings.Fields(string(out)) {
		// The test itself is listed if its first thread opened a socket in the network.
		if pid, err := strconv.Atoi(field); err == nil && pid != os.Getpid() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// commands returns the commands of a block: each line, with the lines that a backslash or a
// here-document joins to it.
func commands(t *testing.T, block string) []string {
	t.Helper()
	var out []string
	var command strings.Builder
	until := ""
	for line := range strings.Lines(block) {
		if command.Len() == 0 && (strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#")) {
			continue
		}
		command.WriteString(line)
		if m := hereDocument.FindStringSubmatch(line); until == "" && m != nil {
			until = m[1]
			continue
		}
		if until != "" && strings.TrimSpace(line) != until || until == "" && strings.HasSuffix(line, "\\\n") {
			continue
		}
		out, until = append(out, command.String()), ""
		command.Reset()
	}
	if command.Len() > 0 {
		t.Fatalf("a command does not end: %s", command.String())
	}
	return out
}

var (
	hereDocument = regexp.MustCompile(`<<'?([A-Z]+)'?`)
	assignment   = regexp.MustCompile(`^([a-z_]+)=(?:\$\(.*\)|\S*)$`)
)

// run runs the commands of a document one after the other. It retries a failed command for some
// time, since what the command needs may still be starting. It returns the last output of each
// command, by the command.
func (s *shell) run(blocks ...string) map[string]string {
	s.t.Helper()
	out := map[string]string{}
	for _, block := range blocks {
		for _, command := range commands(s.t, block) {
			out[strings.TrimSpace(command)] = s.command(strings.TrimSpace(strings.ReplaceAll(command, "/tmp/", s.tmp+"/")))
		}
	}
	return out
}

func (s *shell) command(command string) string {
	s.t.Helper()
	s.t.Logf("$ %s", command)
	name, _, _ := strings.Cut(command, " ")
	if background, ok := strings.CutSuffix(command, "&"); ok {
		in := s.n.command()
		if s.running == nil {
			s.running = map[string][]*processtest.Process{}
		}
		s.running[name] = append(s.running[name], processtest.Start(s.t, processtest.Options{
			Name: name, Path: in[0], Args: append(in[1:], "bash", "-c", "cd '"+s.dir+"' && exec "+background), Env: s.env,
		}))
		return ""
	}
	variable := assignment.FindStringSubmatch(command)
	if variable != nil {
		command += "\nprintf %s \"$" + variable[1] + "\""
	}
	var out string
	if strings.Contains(command, patient) { // it waits for all that the page started
		var err error
		if out, err = s.try(command); err != nil {
			s.t.Fatalf("%s: %v", command, err)
		}
	} else {
		eventually(s.t, command, func() error {
			var err error
			out, err = s.try(command)
			return err
		})
	}
	if variable != nil {
		s.env = append(s.env, variable[1]+"="+out)
	}
	s.t.Log(out)
	return out
}

// stop ends the programs of a name in the background.
func (s *shell) stop(name string) {
	s.t.Helper()
	for _, p := range s.running[name] {
		_ = p.Terminate(s.t, patience)
	}
	delete(s.running, name)
}

// patient is part of a command that must succeed at the first try, since a user types it once.
const patient = "--retry 90"

// try runs a command once. It is no failure if `portolan diff` finds differences.
func (s *shell) try(command string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Minute)
	defer cancel()
	in := s.n.command()
	c := exec.CommandContext(ctx, in[0], append(in[1:], "bash", "-e", "-u", "-o", "pipefail", "-c", command)...)
	var out bytes.Buffer
	c.Dir, c.Env, c.Stdout, c.Stderr = s.dir, append(os.Environ(), s.env...), &out, &out
	err := c.Run()
	if c.ProcessState.ExitCode() == 2 && strings.HasPrefix(command, "portolan diff ") {
		err = nil
	}
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out.String())
	}
	return out.String(), nil
}

// TestReadmeCommands runs the commands of the README, then those of the example, and
// checks that the service answers.
func TestReadmeCommands(t *testing.T) {
	t.Parallel()
	s := newShell(t)
	out := s.run(fences(t, "README.md")...)
	s.run(fences(t, "examples/quickstart/README.md")...)
	const call = "curl -sSf --retry 90 --retry-delay 1 --retry-connrefused -H 'Host: reviews.shop.example' http://127.0.0.1:8080/"
	if answer := out[call]; !strings.Contains(answer, "reviews v") {
		t.Errorf("%s: %q", call, answer)
	}
}

// ownServer is the sentence on pages whose commands start a server on the usual ports.
const ownServer = "this page starts its own"

// TestTaskPages runs the commands of each page of docs/tasks in an empty directory,
// after the quickstart of the README unless the page starts a server of its own. TestKubernetesPages
// runs those that need a cluster.
func TestTaskPages(t *testing.T) {
	pages, err := filepath.Glob("../docs/tasks/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("there are no pages: %v", err)
	}
	quickstart := fences(t, "README.md")[0]
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := fences(t, strings.TrimPrefix(filepath.ToSlash(page), "../"))
		if len(blocks) == 0 || slices.Contains(clusterPages, filepath.Base(page)) {
			continue
		}
		t.Run(strings.TrimSuffix(filepath.Base(page), ".md"), func(t *testing.T) {
			t.Parallel()
			for _, tool := range []string{"openssl", "python3"} {
				if bytes.Contains(text, []byte("\n"+tool+" ")) {
					needTools(t, tool)
				}
			}
			s := newShell(t)
			s.standIns(t, strings.TrimSuffix(filepath.Base(page), ".md"))
			if !bytes.Contains(text, []byte(ownServer)) {
				s.run(quickstart)
			}
			s.dir = t.TempDir()
			s.run(blocks...)
		})
	}
}

// standIns puts programs first on the PATH that replace others on a page, such as kubectl with
// a cluster, if there are any.
func (s *shell) standIns(t *testing.T, page string) {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("testdata", page, "bin"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); err == nil {
		s.env = append(s.env, strings.Replace(s.env[0], "PATH=", "PATH="+dir+":", 1))
	}
}

// TestTrafficExamples runs the commands of examples/traffic, section by section, and checks
// their output.
func TestTrafficExamples(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../examples/traffic/README.md")
	if err != nil {
		t.Fatal(err)
	}
	checks := map[string]string{ // the output of a section, as a regular expression
		"The services and a client": `reviews v1\n.* reviews v2\n.* reviews v3\n`,
		"Request routing":           `\b10 reviews v1\n.*\b10 reviews v2\n`,
		"Fault injection":           `200 after (?:1.9|[2-9])[^\n]* s\n500\nratings v1\n`,
		"Traffic shifting":          `\b` + share(30, 70) + ` reviews v1\n\s*` + share(30, 70) + ` reviews v3\n`,
		"TCP traffic shifting":      `\b` + share(60, 95) + ` one hello\n\s*` + share(5, 40) + ` two hello\n`,
		"TCP through a gateway":     `\b` + share(5, 40) + ` one hello\n\s*` + share(60, 95) + ` two hello\n`,
		"Request timeouts":          `504 after [01]\.[^\n]* s\nreviews v2\n`,
		"Circuit breaking":          `\b[1-5] 200\n\s*[5-9] 503\n`,
		"Mirroring":                 `\b10 httpbin v1\n(9|10) copies\n`,
		"Locality load balancing": `\b10 helloworld eu\n.*\b10 helloworld us\n.*` +
			`\b` + share(60, 95) + ` helloworld eu\n\s*` + share(5, 40) + ` helloworld us\n`,
		"Egress": `outside\n504 after (?:0.9|[12]\.)[^\n]* s\n`,
	}
	s := newShell(t)
	sections := strings.Split(string(text), "\n## ")[1:]
	if len(sections) != len(checks) {
		t.Errorf("%d sections, %d checks", len(sections), len(checks))
	}
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		check, ok := checks[title]
		if !ok {
			t.Errorf("section %q has no check", title)
		}
		var out strings.Builder
		for _, block := range fencesOf(section) {
			for _, command := range commands(t, block) {
				out.WriteString(s.run(command)[strings.TrimSpace(command)])
			}
		}
		if !regexp.MustCompile("(?s)" + check).MatchString(out.String()) {
			t.Errorf("%s: the output is not %s:\n%s", title, check, out.String())
		}
	}
}

// share returns a regular expression for the numbers from least to most.
func share(least, most int) string {
	var all []string
	for n := least; n <= most; n++ {
		all = append(all, strconv.Itoa(n))
	}
	return "(?:" + strings.Join(all, "|") + ")"
}
