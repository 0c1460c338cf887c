package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/config"
	"github.com/portolan-mesh/portolan/storage/longtest"
)

// TestSoakDist: what `make dist` makes can be installed, upgraded, removed and purged, and is the same
// wherever it is made.
func TestSoakDist(t *testing.T) {
	t.Parallel()
	needNetworks(t, "lintian", "dpkg", "dpkg-deb", "rpm", "systemd-analyze", "unshare", "git", "sha256sum", "chroot")
	dist := needDist(t)
	t.Run("lintian", func(t *testing.T) {
		t.Parallel()
		files := []string{distFile(t, dist, "portolan-agent_*.deb")}
		if longtest.Soak(t) > 0 { // it takes half a minute for that of the server
			files = append(files, distFile(t, dist, "portolan_*.deb"))
		}
		output(t, "", "lintian", append([]string{"--fail-on", "error"}, files...)...)
	})
	t.Run("sums", func(t *testing.T) {
		t.Parallel()
		output(t, dist, "sha256sum", "--check", "--strict", "SHA256SUMS")
	})
	t.Run("units", func(t *testing.T) { t.Parallel(); unitsAreHardened(t) })
	t.Run("pages", func(t *testing.T) { t.Parallel(); pagesHaveCommands(t, dist) })
	t.Run("monitoring", func(t *testing.T) { t.Parallel(); packagesHaveRules(t, dist) })
	t.Run("deb", func(t *testing.T) { t.Parallel(); debComesAndGoes(t, dist) })
	t.Run("rpm", func(t *testing.T) { t.Parallel(); rpmComesAndGoes(t, dist) })
	t.Run("image", func(t *testing.T) { t.Parallel(); imageStarts(t, dist) })
	t.Run("reproducible", func(t *testing.T) { t.Parallel(); distIsReproducible(t, dist) })
	t.Run("arm64", func(t *testing.T) { t.Parallel(); arm64Starts(t) })
}

// buildDist makes all for amd64, once for all tests.
var buildDist = sync.OnceValues(func() (string, error) {
	out := filepath.Join(filepath.Dir(binary), "dist")
	return out, runWith(nil, distCommand("..", out, "ARCH=amd64")...)
})

// needDist returns the directory of what `make dist` makes for amd64.
func needDist(t testing.TB) string {
	t.Helper()
	dist, err := buildDist()
	if err != nil {
		t.Fatal(err)
	}
	return dist
}

// distCommand makes packages from the source in a directory.
func distCommand(source, out string, args ...string) []string {
	return append([]string{"make", "-C", source, "dist", "OUT=" + out, "VERSION=v1.2.3", "REVISION=abc", "SOURCE_DATE_EPOCH=1795901038"}, args...)
}

// makeDist makes packages from the source in a directory.
func makeDist(t *testing.T, source, out string, args ...string) {
	t.Helper()
	command := distCommand(source, out, args...)
	output(t, "", command[0], command[1:]...)
}

// output runs a command, which must succeed, and returns what it prints.
func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", c, err, out)
	}
	return string(out)
}

// distFile returns the one file of a pattern.
func distFile(t *testing.T, dist, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dist, pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s is %q, %v", pattern, found, err)
	}
	return found[0]
}

// unitsAreHardened: systemd rates both units below 3.0, and the main units have no capability.
func unitsAreHardened(t *testing.T) {
	for _, name := range []string{"portolan", "portolan-agent"} {
		unit := "../.ci/dist/files/" + name + "/" + name + ".service"
		output(t, "", "systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager", unit)
		text, err := os.ReadFile(unit)
		if err != nil || !strings.Contains(string(text), "\nCapabilityBoundingSet=\nAmbientCapabilities=\n") {
			t.Errorf("%s has capabilities: %v", unit, err)
		}
	}
}

// pagesHaveCommands: the manual pages have a section for each command.
func pagesHaveCommands(t *testing.T, dist string) {
	command := regexp.MustCompile(`(?m)^  ([a-z-]+) +[A-Z]`)
	for name, program := range map[string]string{"portolan": binary, "portolan-agent": needAgent(t)} {
		page := output(t, "", "sh", "-c", "dpkg-deb --fsys-tarfile "+distFile(t, dist, name+"_*.deb")+" | tar -xO ./usr/share/man/man1/"+name+".1.gz | gunzip")
		help := output(t, "", program, "help")
		_, commands, _ := strings.Cut(help, "Available Commands:\n")
		commands, _, _ = strings.Cut(commands, "\n\n")
		found := command.FindAllStringSubmatch(commands, -1)
		if len(found) < 5 {
			t.Errorf("%s help lists %d commands", name, len(found))
		}
		for _, c := range found {
			section := "\n.SH " + strings.ToUpper(strings.ReplaceAll(name+" "+c[1], "-", `\-`)) + "\n"
			if c[1] != "completion" && !strings.Contains(page, section) {
				t.Errorf("%s(1) has no section of %s", name, c[1])
			}
		}
	}
}

// packagesHaveRules: the packages of the server and its archive have the rules and the dashboard
// as they are here.
func packagesHaveRules(t *testing.T, dist string) {
	for _, name := range []string{"alerts.yaml", "dashboard.json"} {
		want, err := os.ReadFile(filepath.Join(monitoring, name))
		if err != nil {
			t.Fatal(err)
		}
		inside := "./usr/share/portolan/monitoring/" + name
		for what, command := range map[string]string{
			"the deb":     "dpkg-deb --fsys-tarfile " + distFile(t, dist, "portolan_*.deb") + " | tar -xO " + inside,
			"the archive": "tar -xzOf " + distFile(t, dist, "portolan_*.tar.gz") + " " + inside,
		} {
			if got := output(t, "", "sh", "-c", command); got != string(want) {
				t.Errorf("%s has another %s", what, name)
			}
		}
		if listed := output(t, "", "rpm", "-qlp", distFile(t, dist, "portolan_*.rpm")); !strings.Contains(listed, strings.TrimPrefix(inside, ".")+"\n") {
			t.Errorf("the rpm has no %s: %s", name, listed)
		}
	}
}

// TestTheManualHasTheFile: the manual page of the agent's file names each field of it.
func TestTheManualHasTheFile(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../.ci/dist/files/portolan-agent/portolan-agent.yaml.5")
	if err != nil {
		t.Fatal(err)
	}
	var look func(of reflect.Type, deeper bool)
	look = func(of reflect.Type, deeper bool) {
		for field := range of.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			kind := field.Type
			if kind.Kind() == reflect.Pointer {
				kind = kind.Elem()
			}
			switch {
			case field.Anonymous:
				look(kind, false)
				continue
			case name == "-":
				continue
			case !regexp.MustCompile(`(?m)^\.BR? (.*[ "])?` + name + `\b`).Match(page):
				t.Errorf("the page has no field %s", name)
			}
			if deeper && kind.Kind() == reflect.Struct && strings.HasSuffix(kind.PkgPath(), "portolan-agent/config") {
				look(kind, false)
			}
		}
	}
	look(reflect.TypeFor[config.Config](), true)
}

// scratch runs a script in a root of its own, m: this machine's, over which all that is written
// lies in u. Nothing of this machine changes.
func scratch(t *testing.T, script string, env ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-euc", `
mount -t tmpfs scratch "$DIR"
cd "$DIR"
mkdir u w m
mount -t overlay overlay -o "lowerdir=/,upperdir=$DIR/u,workdir=$DIR/w" m
mount -t proc proc m/proc
left() { find u ! -type c | grep portolan | grep -v -e var/lib/dpkg -e var/lib/rpm -e "$DIR" || true; }
user() { grep -c "^$1:" m/etc/passwd || true; }
exec 3>&1 >&2
`+script)
	c.Env = append(append(os.Environ(), "DIR="+t.TempDir()), env...)
	var out, log bytes.Buffer
	c.Stdout, c.Stderr = &out, &log
	if err := c.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out.String(), log.String())
	}
	return out.String()
}

// debComesAndGoes: owners and modes fit, an upgrade keeps what the operator wrote, a removal keeps
// configuration, and a purge leaves nothing but the data of the server.
func debComesAndGoes(t *testing.T, dist string) {
	got := scratch(t, `
D="dpkg --root=$DIR/m --force-depends --no-triggers"
$D -i "$SERVER" "$AGENT"
chroot m stat -c '%n %a %U %G' /etc/portolan /etc/portolan-agent /var/lib/portolan /var/lib/portolan-agent >&3
chroot m portolan-agent version | cut -d' ' -f1,2 >&3
echo 'api-address: mine:1' >m/etc/portolan/serve.yaml
touch m/etc/portolan-agent/config.yaml m/var/lib/portolan-agent/key m/var/lib/portolan/store
dpkg-deb --raw-extract "$SERVER" newer
sed -i 's/^Version: .*/Version: 9.0/' newer/DEBIAN/control
dpkg-deb -Znone -b newer newer.deb
$D -i newer.deb
cat m/etc/portolan/serve.yaml >&3
chroot m systemd-analyze verify --man=no portolan.service portolan-agent.service
dpkg-query --root="$DIR/m" -W -f '${Version}\n' portolan >&3
$D --remove portolan portolan-agent
echo removed: >&3; left | sort >&3
$D --purge portolan portolan-agent
echo purged: >&3; left | sort >&3
user portolan >&3; user portolan-agent >&3
`, "SERVER="+distFile(t, dist, "portolan_*.deb"), "AGENT="+distFile(t, dist, "portolan-agent_*.deb"))
	want := `/etc/portolan 750 root portolan
/etc/portolan-agent 750 root portolan-agent
/var/lib/portolan 700 portolan portolan
/var/lib/portolan-agent 700 portolan-agent portolan-agent
portolan-agent v1.2.3
api-address: mine:1
9.0
removed:
u/etc/portolan
u/etc/portolan-agent
u/etc/portolan-agent/config.yaml
u/etc/portolan/serve.yaml
u/var/lib/portolan
u/var/lib/portolan-agent
u/var/lib/portolan-agent/key
u/var/lib/portolan/store
purged:
u/var/lib/portolan
u/var/lib/portolan/store
1
0
`
	if got != want {
		t.Errorf("it is\n%s\nand should be\n%s", got, want)
	}
}

// rpmComesAndGoes: the same of the packages of RPM, which keep the data of both.
func rpmComesAndGoes(t *testing.T, dist string) {
	got := scratch(t, `
R="rpm --root=$DIR/m --nodeps"
$R -i "$SERVER" "$AGENT"
chroot m stat -c '%n %a %U %G' /etc/portolan /etc/portolan-agent /var/lib/portolan /var/lib/portolan-agent >&3
rpm --root="$DIR/m" -qc portolan >&3
touch m/var/lib/portolan/store
$R -e portolan portolan-agent
left | grep -e /etc/ -e /usr/ -e store >&3
`, "SERVER="+distFile(t, dist, "portolan_*.rpm"), "AGENT="+distFile(t, dist, "portolan-agent_*.rpm"))
	want := `/etc/portolan 750 root portolan
/etc/portolan-agent 750 root portolan-agent
/var/lib/portolan 700 portolan portolan
/var/lib/portolan-agent 700 portolan-agent portolan-agent
/etc/portolan/serve.yaml
u/var/lib/portolan/store
`
	if got != want {
		t.Errorf("it is\n%s\nand should be\n%s", got, want)
	}
}

// ociImage is the configuration of an image.
type ociImage struct {
	Architecture string
	Config       struct {
		User                 string
		Env, Entrypoint, Cmd []string
	}
}

// unpackImage returns the configuration of an image, and a directory with its files.
func unpackImage(t *testing.T, file string) (image ociImage, root string) {
	t.Helper()
	root = t.TempDir()
	layout := t.TempDir()
	output(t, "", "tar", "-xf", file, "-C", layout)
	read := func(file string, into any) {
		text, err := os.ReadFile(filepath.Join(layout, file))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	type blob struct{ Digest string }
	path := func(b blob) string { return "blobs/" + strings.Replace(b.Digest, ":", "/", 1) }
	var index struct{ Manifests []blob }
	read("index.json", &index)
	var manifest struct {
		Config blob
		Layers []blob
	}
	read(path(index.Manifests[0]), &manifest)
	read(path(manifest.Config), &image)
	for _, l := range manifest.Layers {
		output(t, layout, "tar", "-xf", path(l), "-C", root)
	}
	return image, root
}

// imageStarts: the server of the image becomes ready on a root that nobody can write to, as a user
// who is not root.
func imageStarts(t *testing.T, dist string) {
	image, root := unpackImage(t, distFile(t, dist, "portolan_*.oci.tar"))
	output(t, root, "mkdir", "proc", "dev")
	c := exec.CommandContext(t.Context(), "unshare", "--mount", "--propagation", "private", "sh", "-euc", `
mount --bind "$ROOT" "$ROOT"
mount -o remount,ro,bind "$ROOT"
mount -t proc proc "$ROOT/proc"
mount --bind /dev "$ROOT/dev"
mount -t tmpfs -o uid=65532,gid=65532,mode=0700 state "$ROOT/var/lib/portolan"
! touch "$ROOT/tmp/x" 2>/dev/null
exec chroot --userspec="$USER" "$ROOT" "$@" --api-address 127.0.0.1:0 --xds-address 127.0.0.1:0`, "sh")
	c.Args = append(append(c.Args, image.Config.Entrypoint...), image.Config.Cmd...)
	c.Env = append([]string{"ROOT=" + root, "USER=" + image.Config.User, "PATH=" + os.Getenv("PATH")}, image.Config.Env[1:]...)
	log, err := c.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	watchdog := time.AfterFunc(time.Minute, func() { _ = c.Process.Kill() })
	defer watchdog.Stop()
	ready, lines := false, bufio.NewScanner(log)
	var all strings.Builder
	for lines.Scan() {
		all.WriteString(lines.Text() + "\n")
		if !ready && strings.Contains(lines.Text(), "msg=ready") {
			ready = true
			if err := c.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
		}
	}
	if err := c.Wait(); err != nil || !ready {
		t.Errorf("ready is %v: %v\n%s", ready, err, all.String())
	}
}

// distIsReproducible: a copy of the source elsewhere gives the same bytes.
func distIsReproducible(t *testing.T, dist string) {
	source, out := t.TempDir(), t.TempDir()
	output(t, "..", "sh", "-c", `git ls-files -z --cached --others --exclude-standard | tar --null --files-from=- --ignore-failed-read -c | tar -x -C "$0"`, source)
	makeDist(t, source, out, "ARCH=amd64", "PRODUCT=portolan-agent")
	for _, ending := range []string{"deb", "rpm", "tar.gz", "oci.tar", "sbom.json"} {
		pattern := "portolan-agent_*." + ending
		output(t, "", "cmp", distFile(t, dist, pattern), distFile(t, out, pattern))
	}
}
