package integration

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fences returns the shell blocks of a document, in order. The path is relative to the root of
// the repository.
func fences(t testing.TB, document string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", document))
	if err != nil {
		t.Fatal(err)
	}
	return fencesOf(string(text))
}

// fencesOf returns the shell blocks of a text.
func fencesOf(text string) []string {
	var blocks []string
	for _, match := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(text, -1) {
		blocks = append(blocks, match[1])
	}
	return blocks
}

// drill runs the commands of a document on a server's machine. Only the data directory is
// another. The test stands in for systemctl.
type drill struct {
	*server
	dir string // where the commands run
}

func (d *drill) run(block string) (out string) {
	d.t.Helper()
	d.t.Logf("runs\n%s", block)
	var commands []string
	flush := func() {
		out += d.sh(strings.Join(commands, "\n"))
		commands = nil
	}
	for _, line := range strings.Split(strings.TrimSpace(block), "\n") {
		switch line {
		case "systemctl stop portolan":
			flush()
			if err := d.process.terminate(d.t); err != nil {
				d.t.Fatal(err)
			}
		case "systemctl start portolan", "portolan serve --new-store --data-dir /var/lib/portolan/store &":
			flush()
			d.start()
		default:
			commands = append(commands, line)
		}
	}
	flush()
	return out
}

func (d *drill) sh(commands string) string {
	d.t.Helper()
	commands = strings.ReplaceAll(commands, "/var/lib/portolan", filepath.Dir(d.o.dataDir))
	c := exec.Command("bash", "-e", "-u", "-o", "pipefail", "-c", commands)
	c.Dir = d.dir
	c.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "PORTOLAN_SERVER="+d.url(""))
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		d.t.Fatalf("%s\n%v\n%s", commands, err, out.String())
	}
	return out.String()
}

func (d *drill) expect(out string, words ...string) {
	d.t.Helper()
	for _, w := range words {
		if !strings.Contains(out, w) {
			d.t.Errorf("%q is not in\n%s", w, out)
		}
	}
}

// TestOperationsDrill runs docs/operations/backup.md command by command, and checks
// that each has the outcome that the page describes.
func TestOperationsDrill(t *testing.T) {
	t.Parallel()
	blocks := fences(t, "docs/operations/backup.md")
	if len(blocks) != 5 {
		t.Fatalf("%d blocks of commands: this test knows the outcome of 5", len(blocks))
	}
	s, x := startServer(t, serverOptions{dataDir: filepath.Join(t.TempDir(), "portolan", "store")}), newShop(t)
	d := &drill{s, t.TempDir()}
	s.apply(x.all(100, 0))
	save, restore, restoreMember, fromText, space := blocks[0], blocks[1], blocks[2], blocks[3], blocks[4]

	d.expect(d.run(save), "saved mesh.backup: revision", "4 objects", "as its content has", "with the keys, wrapped", "VirtualService.networking.istio.io")
	s.apply(x.routes(0, 100), later("lost", 8080)) // the change to undo
	d.expect(d.run(restore), "restored "+s.o.dataDir+": 4 objects", "revision    1000000", "alarms      none")
	d.expect(s.must("", "get", "se", "-A"), "reviews")
	if out := s.must("", "get", "se", "-A"); strings.Contains(out, "lost") {
		t.Errorf("it is not as it was:\n%s", out)
	}
	d.expect(d.run(restoreMember), "restored "+s.o.dataDir+"-cp-1:")
	d.expect(d.run(fromText), "created (dry run)", "virtualservice/shop/reviews")
	d.expect(d.run(space), "compacted to revision", "defragmented in", "quarantine  0 keys")
	s.awaitWhole()
}

// TestServeBackupDir: a server makes snapshots by itself, and reports it.
func TestServeBackupDir(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "backups")
	s := startServer(t, serverOptions{args: []string{"--backup-dir", dir, "--backup-without-keys", "--backup-keep", "2"}})
	eventually(t, "the first snapshot is made", func() error {
		out := s.must("", "store", "status")
		if !strings.Contains(out, "backup") || strings.Contains(out, "none yet") {
			return os.ErrNotExist
		}
		return nil
	})
	files, err := filepath.Glob(filepath.Join(dir, "portolan-*.backup"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%q, %v", files, err)
	}
	if out := command(t, "", "store", "inspect", files[0]); out.code != 0 {
		t.Error(out.stderr)
	}
	if at := s.gauge("portolan_backup_last_success_timestamp_seconds"); at == 0 {
		t.Error("no time of it")
	}
	expectEqual(t, "portolan_backup_failures_total", s.gauge("portolan_backup_failures_total"), 0)
}

// TestSnapshotOnAFullDisk leaves no partial file, and does the server no harm.
func TestSnapshotOnAFullDisk(t *testing.T) {
	disk := smallFileSystem(t, 1)
	s := startServer(t, serverOptions{})
	for i := range 12 {
		s.apply(large(i))
	}
	file := filepath.Join(disk, "mesh.snapshot")
	out := s.try("", "store", "backup", "--without-keys", file)
	if out.code != 1 || !strings.Contains(out.stderr, "no space left") {
		t.Errorf("exit code %d: %s", out.code, out.stderr)
	}
	if left, err := os.ReadDir(disk); err != nil || len(left) > 0 {
		t.Errorf("%v is left there, %v", left, err)
	}
	out = command(t, "", "store", "restore", "--without-keys", file, "--data-dir", filepath.Join(disk, "data"))
	if out.code == 0 {
		t.Error("a restore of nothing")
	}
	good := filepath.Join(t.TempDir(), "good")
	s.must("", "store", "backup", "--without-keys", good)
	out = command(t, "", "store", "restore", "--without-keys", good, "--data-dir", filepath.Join(disk, "data"))
	if out.code != 1 || !strings.Contains(out.stderr, "too little free space") {
		t.Errorf("a restore to a full disk: exit code %d: %s", out.code, out.stderr)
	}
	if left, err := os.ReadDir(disk); err != nil || len(left) > 0 {
		t.Errorf("%v is left there, %v", left, err)
	}
}
