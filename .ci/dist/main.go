// Command dist makes what people install: packages for Debian and for RPM, tar archives,
// container images, lists of what is in them, and checksums. The same commit gives the same
// bytes on every machine.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// product is one binary for one architecture, and what is made of it.
type product struct {
	name, arch string
	release
}

// release is what all products of one run share.
type release struct {
	version  string    // as the binaries say it
	revision string    // the commit
	date     time.Time // of the commit: the time of all files
	source   string    // root of the repository
	out      string
	files    string // folder of the packages' files
	stage    string // where what is made on the way is
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "make dist: %s\n", err)
		os.Exit(1)
	}
}

func run() error {
	r := release{}
	arches := flag.String("arch", "amd64,arm64", "architectures")
	products := flag.String("product", "portolan,portolan-agent", "programs")
	ldflags := flag.String("ldflags", "", "flags of the linker")
	tags := flag.String("tags", "", "build tags")
	date := flag.Int64("date", 0, "time of the commit, in seconds since 1970")
	flag.StringVar(&r.version, "version", "", "version, as git describe says it")
	flag.StringVar(&r.revision, "revision", "", "the commit")
	flag.StringVar(&r.source, "source", "../..", "root of the repository")
	flag.StringVar(&r.files, "files", "files", "folder of the packages' files")
	flag.StringVar(&r.out, "out", "../../dist", "folder of what is made")
	flag.Parse()
	r.date = time.Unix(*date, 0).UTC()
	stage, err := os.MkdirTemp("", "portolan-dist-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(stage) }()
	r.stage = stage
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for name := range strings.SplitSeq(*products, ",") {
		if err := r.describe(name, *tags, *ldflags); err != nil {
			return err
		}
		for arch := range strings.SplitSeq(*arches, ",") {
			p := product{name: name, arch: arch, release: r}
			if err := p.make(*tags, *ldflags); err != nil {
				return fmt.Errorf("%s for %s: %w", name, arch, err)
			}
		}
	}
	return r.writeSums()
}

func (p product) make(tags, ldflags string) error {
	if err := p.build(tags, ldflags); err != nil {
		return err
	}
	info, err := p.packages()
	if err != nil {
		return err
	}
	for _, step := range []func() error{func() error { return p.archive(info) }, p.image, p.writeSBOM} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// build builds the binary, unless that has been done. It has no stamp of the repository, so that
// the state of a clone does not show.
func (p product) build(tags, ldflags string) error {
	if _, err := os.Stat(p.binary()); err == nil {
		return nil
	}
	c := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", tags, "-ldflags", ldflags, "-o", p.binary(), "./cmd/"+p.name)
	c.Dir = p.source
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+p.arch, "GOFLAGS=", "GOWORK=off")
	c.Stdout, c.Stderr = os.Stderr, os.Stderr
	return c.Run()
}

// binary is where the binary of a product is built.
func (p product) binary() string { return filepath.Join(p.stage, p.arch, p.name) }

// file returns the path of a made file, such as dist/portolan_1.2.0_amd64.deb.
func (p product) file(ending string) string {
	return filepath.Join(p.out, fmt.Sprintf("%s_%s_%s%s", p.name, p.packageVersion(), p.arch, ending))
}

// packageVersion is the version as packages have it. It begins with a digit and has no hyphen:
// v1.2.0 is 1.2.0, the third commit after it 1.2.0+3.gabc, and a commit without any tag before
// it 0.0~git20261128.abc, which is before every release.
func (r release) packageVersion() string {
	version, dirty := strings.CutSuffix(r.version, "-dirty")
	if rest, ok := strings.CutPrefix(version, "v"); ok && rest != "" && rest[0] >= '0' && rest[0] <= '9' {
		version = strings.ReplaceAll(strings.Replace(rest, "-", "+", 1), "-", ".")
	} else {
		version = "0.0~git" + r.date.Format("20060102") + "." + version
	}
	if dirty {
		version += "+dirty"
	}
	return version
}
