package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/portolan-mesh/portolan/cmd/portolan-agent/capture"
	"github.com/portolan-mesh/portolan/integration/processtest"
)

// booted is a machine of a lan on which systemd is process 1. Its root is that of this machine,
// over which all that is written lies in memory.
type booted struct {
	*lanMachine
	systemd *processtest.Process
}

// bootScript starts systemd in a root of its own, m, with a hierarchy of control groups of its own.
// What runs on this machine does not start: only what a test starts does. Kernel settings beyond
// the network, which are those of this machine, are read-only.
const bootScript = `
cd "$DIR"
mount -t tmpfs scratch .
cd "$DIR"
mkdir u w m c
mount -t cgroup2 cgroup c
mkdir "c/$GROUP"
echo 0 >"c/$GROUP/cgroup.procs"
umount c
exec unshare --cgroup sh -euc '
mount -t overlay overlay -o "lowerdir=/,upperdir=$DIR/u,workdir=$DIR/w" m
mount -t proc proc m/proc
mount --bind m/proc/sys m/proc/sys
mount --bind m/proc/sys/net m/proc/sys/net
mount -o remount,ro,bind m/proc/sys
mount -o ro -t sysfs sysfs m/sys
mount -t cgroup2 cgroup m/sys/fs/cgroup
mount -t tmpfs -o mode=0755 run m/run
mount -t tmpfs -o mode=1777 tmp m/tmp
mount -t tmpfs -o mode=0755 dev m/dev
for device in null zero full random urandom tty; do
  touch "m/dev/$device"
  mount --bind "/dev/$device" "m/dev/$device"
done
mkdir m/dev/shm m/dev/pts
mount -t tmpfs -o mode=1777 shm m/dev/shm
mount -t devpts -o newinstance,ptmxmode=0666 devpts m/dev/pts
ln -s pts/ptmx m/dev/ptmx
ln -s /proc/self/fd m/dev/fd
rm -rf m/etc/systemd/system/*.wants m/etc/resolv.conf
echo "nameserver 10.77.0.1" >m/etc/resolv.conf
echo "$NAME" >m/etc/hostname
: >m/etc/fstab
: >m/etc/machine-id
touch m/usr/local/bin/envoy
mount --bind "$ENVOY" m/usr/local/bin/envoy
mkdir -p m/opt/dist
mount --bind "$DIST" m/opt/dist
cd m
pivot_root . mnt
umount -l /mnt
exec env -i container=portolan PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --system --unit=basic.target --log-target=journal --show-status=no
'
`

// boot adds a machine to the network and boots systemd on it. The packages of dist are in /opt/dist,
// and an Envoy is on the path.
func (l *lan) boot(name, dist string) *booted {
	l.t.Helper()
	needTools(l.t, "/lib/systemd/systemd", "unshare", "nsenter", "dpkg")
	b := &booted{lanMachine: l.machine(name)}
	if out, err := exec.CommandContext(l.t.Context(), "unshare", "--mount", "mount", "-t", "cgroup2", "cgroup", b.dir).CombinedOutput(); err != nil {
		l.t.Skipf("SKIPPED, AND NOTHING WAS TESTED: systemd needs control groups, version 2: %v: %s", err, out)
	}
	script := append(b.command(), "unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "sh", "-euc", bootScript)
	l.t.Cleanup(func() {
		eventually(l.t, "the control groups are removed", func() error {
			return run0("unshare", "--mount", "sh", "-euc", `mount -t cgroup2 cgroup "$0"; find "$0/$1" -depth -type d -exec rmdir {} +`, b.dir, b.namespace.name)
		})
	})
	b.systemd = processtest.Start(l.t, processtest.Options{
		Name: "systemd", Path: script[0], Args: script[1:],
		Env: []string{"DIR=" + l.t.TempDir(), "GROUP=" + b.namespace.name, "NAME=" + name, "ENVOY=" + needEnvoy(l.t), "DIST=" + dist},
	})
	eventually(l.t, "systemd has started", func() error {
		if !b.systemd.Running() {
			l.t.Fatalf("systemd has ended: %v\n%s", b.systemd.Err(), b.systemd.Tail())
		}
		out, err := b.program("systemctl", "is-system-running")
		if out == "running" || out == "degraded" {
			return nil
		}
		return fmt.Errorf("it is %q: %w", out, err)
	})
	return b
}

// init returns the process id of systemd on this machine.
func (b *booted) init() (string, error) {
	file := fmt.Sprintf("/proc/%d/task/%[1]d/children", b.systemd.PID())
	text, err := os.ReadFile(file)
	if pid := strings.TrimSpace(string(text)); pid != "" {
		return pid, nil
	}
	return "", fmt.Errorf("%s is empty: %w", file, err)
}

// program runs a program on the machine, as root, and returns what it prints.
func (b *booted) program(command ...string) (string, error) {
	pid, err := b.init()
	if err != nil {
		return "", err
	}
	c := exec.CommandContext(b.t.Context(), "nsenter", append([]string{"--target", pid, "--all"}, command...)...)
	c.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	var out, problem bytes.Buffer
	c.Stdout, c.Stderr = &out, &problem
	if err := c.Run(); err != nil {
		return strings.TrimSpace(out.String()), fmt.Errorf("%s: %w: %s%s", strings.Join(command, " "), err, out.String(), problem.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// must runs a program on the machine that has to succeed.
func (b *booted) must(command ...string) string {
	b.t.Helper()
	out, err := b.program(command...)
	if err != nil {
		log, _ := b.program("journalctl", "--no-pager", "-n", "40", "-o", "cat")
		b.t.Fatalf("%v\n%s", err, log)
	}
	return out
}

// show returns a property of a unit.
func (b *booted) show(unit, property string) string {
	b.t.Helper()
	return b.must("systemctl", "show", "--value", "--property", property, unit)
}

// awaitShown waits until a unit has a property.
func (b *booted) awaitShown(unit, property, want string) {
	b.t.Helper()
	eventually(b.t, unit+" has "+property+" "+want, func() error {
		if got := b.show(unit, property); got != want {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// install installs packages that are in /opt/dist.
func (b *booted) install(patterns ...string) {
	b.t.Helper()
	b.must("sh", "-euc", "cd /opt/dist; dpkg --no-triggers --force-depends --install "+strings.Join(patterns, " "))
}

// sandboxed: the processes of a unit have a filter of system calls, these capabilities, and no way
// to write to the system.
func (b *booted) sandboxed(unit, capabilities string) {
	b.t.Helper()
	pids := strings.Fields(b.must("cat", "/sys/fs/cgroup/system.slice/"+unit+".service/cgroup.procs"))
	if len(pids) < 2 {
		b.t.Errorf("%s has the processes %s", unit, pids)
	}
	for _, pid := range pids {
		status := b.must("cat", "/proc/"+pid+"/status")
		for _, want := range []string{"Seccomp:\t2\n", "NoNewPrivs:\t1\n", "CapEff:\t" + capabilities + "\n", "CapBnd:\t" + capabilities + "\n"} {
			if !strings.Contains(status, want) {
				b.t.Errorf("%s is without %q:\n%s", unit, want, status)
			}
		}
		if _, err := b.program("nsenter", "--target", pid, "--mount", "touch", "/usr/own"); err == nil || !strings.Contains(err.Error(), "Read-only file system") {
			b.t.Errorf("%s can write to the system: %v", unit, err)
		}
	}
}

// TestUnitsUnderSystemd: under a systemd that is process 1 the packages' units do all that their
// programs do, in spite of their sandbox: the server keeps what it is told, and the agent joins,
// captures traffic in all ways, and leaves. A removed package leaves no rules behind.
func TestUnitsUnderSystemd(t *testing.T) {
	t.Parallel()
	l := newLAN(t)
	b := l.boot("unit", needDist(t))
	b.install("portolan_*.deb", "portolan-agent_*.deb")
	b.serves()
	l.apply(webGroup, serviceAt("shop", "far.shop.test", "10.9.0.2", ""))
	l.resolver("printer.corp.test", "10.77.0.9")
	serveUpstream(t, "far", l.wire.listen("10.77.0.1:9080"))
	serveUpstream(t, "app", b.listen(":8080"))
	b.captures()
	b.leaves()
}

// serves: the server's unit starts, keeps its store when it is restarted or upgraded, and ends.
func (b *booted) serves() {
	b.t.Helper()
	ready := func(what string) {
		b.t.Helper()
		eventually(b.t, what, func() error {
			_, err := b.program("curl", "-fsS", "http://127.0.0.1:15080/readyz")
			return err
		})
	}
	b.must("systemctl", "enable", "--now", "portolan")
	ready("the server is ready")
	b.sandboxed("portolan", "0000000000000000")
	b.must("sh", "-euc", `printf %s "$0" | portolan apply -f -`, serviceAt("shop", "own.shop.test", "10.9.0.9", ""))
	for _, again := range []struct {
		what string
		do   func()
	}{
		{"restarted", func() { b.must("systemctl", "restart", "portolan") }},
		{"upgraded", func() { b.install("portolan_*.deb") }},
	} {
		was := b.show("portolan", "MainPID")
		again.do()
		ready("the server is ready when it is " + again.what)
		if is := b.show("portolan", "MainPID"); is == was {
			b.t.Errorf("the server is not %s", again.what)
		}
		if got := b.must("portolan", "get", "serviceentry", "own-shop-test", "-n", "shop", "-o", "jsonpath={.spec.hosts[0]}"); got != "own.shop.test" {
			b.t.Errorf("the server that is %s has %q", again.what, got)
		}
	}
	b.must("systemctl", "disable", "--now", "portolan")
	b.ended("portolan")
}

// ended: a unit has ended in order.
func (b *booted) ended(unit string) {
	b.t.Helper()
	if state, result := b.show(unit, "ActiveState"), b.show(unit, "Result"); state != "inactive" || result != "success" {
		b.t.Errorf("%s is %s, with %s", unit, state, result)
	}
}

// calls sends a request from the machine, which the Envoy must pass on.
func (b *booted) calls(address string) error {
	got, err := b.program("curl", "-sS", "-i", "--max-time", "5", "-H", "Host: far.shop.test", "http://"+address+"/")
	if err == nil && (!strings.Contains(got, `"far"`) || !strings.Contains(got, "server: envoy")) {
		err = errors.New(got)
	}
	return err
}

// captured: the agent's unit is active, and takes the first request.
func (b *booted) captured(what string) {
	b.t.Helper()
	if got := b.must("systemctl", "is-active", "portolan-agent"); got != "active" {
		b.t.Fatalf("%s: the agent is %s", what, got)
	}
	if err := b.calls("10.9.0.2"); err != nil {
		b.t.Errorf("%s: the first request: %v", what, err)
	}
}

// captures: the agent's unit captures traffic as soon as it is active, also after all that ends it.
func (b *booted) captures() {
	b.t.Helper()
	const netAdmin = "0000000000001000"
	b.must("systemctl", "start", "portolan-agent")
	if got := b.show("portolan-agent", "ConditionResult"); got != "no" {
		b.t.Errorf("an agent that has not joined: its condition is %q", got)
	}
	for _, mode := range []capture.Mode{capture.Redirect, capture.TProxy} {
		b.must("portolan-agent", "join", b.lan.invite("--group", "web"), "--interception", string(mode))
		b.must("systemctl", "enable", "portolan-agent")
		b.must("systemctl", "restart", "portolan-agent")
		b.captured("the agent is started, with " + string(mode))
		b.sandboxed("portolan-agent", netAdmin)
		if got := b.show("portolan-agent", "StatusText"); got != "ready" {
			b.t.Errorf("the status is %q", got)
		}
		awaitServed(b.t, "a request that comes in", b.lan.wire.http(b.t), "http://"+b.ip+":8080/", "", "app")
		eventually(b.t, "a request by name", func() error { return b.calls("far.shop.test") })
	}
	b.must("systemctl", "reload", "portolan-agent")
	eventually(b.t, "another Envoy", func() error {
		var status lanStatus
		out, err := b.program("portolan-agent", "status", "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &status)
		}
		if err == nil && status.Envoy.Epoch != 1 {
			err = errors.New(out)
		}
		return err
	})
	b.captured("the Envoy is replaced")
	was := b.show("portolan-agent", "MainPID")
	b.install("portolan-agent_*.deb")
	b.captured("the package is upgraded")
	if is := b.show("portolan-agent", "MainPID"); is == was {
		b.t.Error("the agent of the older package runs")
	}
	b.must("kill", "-KILL", b.show("portolan-agent", "MainPID"))
	b.awaitShown("portolan-agent", "NRestarts", "1")
	b.awaitShown("portolan-agent", "ActiveState", "active")
	b.captured("the agent was killed")
	b.must("systemctl", "stop", "portolan-agent")
	b.ended("portolan-agent")
	if err := b.calls("10.9.0.2"); err == nil {
		b.t.Error("a request passes while the agent is stopped")
	}
	b.must("systemctl", "start", "portolan-agent")
	b.captured("the agent is started again")
}

// leaves: after leave no rule and no right is left. The agent comes back without capture, and with
// it again, as it joins. A purge leaves nothing but the store of the server.
func (b *booted) leaves() {
	b.t.Helper()
	const bind = "0000000000000400"
	noRules := func(what string) {
		b.t.Helper()
		if got := b.must("nft", "list", "ruleset"); got != "" {
			b.t.Errorf("%s, and rules are left:\n%s", what, got)
		}
	}
	b.must("portolan-agent", "leave")
	noRules("the machine has left")
	b.awaitShown("portolan-agent", "ActiveState", "inactive")
	if got := b.show("portolan-agent", "AmbientCapabilities"); got != "" {
		b.t.Errorf("the unit has %s after leave", got)
	}
	b.must("portolan-agent", "join", b.lan.invite("--service-account", "web"))
	b.must("systemctl", "enable", "--now", "portolan-agent")
	if err := b.calls("127.0.0.1"); err != nil {
		b.t.Errorf("the first request without capture: %v", err)
	}
	b.sandboxed("portolan-agent", bind)
	b.must("portolan-agent", "join", b.lan.invite("--service-account", "web"), "--interception", "REDIRECT")
	b.must("systemctl", "restart", "portolan-agent")
	b.captured("the agent joins again, with capture")
	b.must("dpkg", "--no-triggers", "--purge", "portolan-agent", "portolan")
	noRules("the packages are purged")
	got := b.must("sh", "-c", "ls -d /etc/portolan* /etc/systemd/system/*portolan* /etc/systemd/system/*/*portolan* /var/lib/portolan* /run/portolan* 2>/dev/null || true")
	if got != "/var/lib/portolan" {
		b.t.Errorf("after the purge there are\n%s", got)
	}
}
