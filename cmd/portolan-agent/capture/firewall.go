package capture

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Firewall is the packet filter of a machine. It needs the right to change networks
// (CAP_NET_ADMIN), the program nft, and for TPROXY and IPv6 the program ip.
type Firewall struct {
	// Applied is the file that says what was applied last, and what the packet filter made of it.
	Applied string
	// In is a command that runs others where the rules are to be, empty for here: ip netns exec
	// NAME.
	In []string
}

// State says how the rules of a machine compare with those that were applied.
type State string

// The states.
const (
	InForce State = "in force"
	Absent  State = "absent"  // the machine has none
	Other   State = "other"   // the machine has others: somebody changed them, or other ones are to be applied
	Partial State = "partial" // the sidecar's IPv6 address is missing, or the rule of routing of a transparent one
)

// Apply puts the rules in force in one transaction: before it the old ones are, and after it the
// new ones. Rules of others stay as they are. If it fails, the old ones are still in force.
func (f Firewall) Apply(ctx context.Context, r Rules) error {
	r = f.present(r)
	script, err := r.Script()
	if err != nil {
		return err
	}
	if r.Mode == TProxy && !r.Inbound.Off {
		if err := f.addRoutes(ctx, r); err != nil {
			return err
		}
	}
	if err := f.addSource(ctx, r); err != nil {
		return err
	}
	if _, err := f.run(ctx, script, "nft", "-f", "-"); err != nil {
		return err
	}
	if r.Mode != TProxy || r.Inbound.Off {
		if err := f.removeRoutes(ctx); err != nil {
			return err
		}
	}
	listing, err := f.listing(ctx)
	if err != nil {
		return err
	}
	return f.remember(script, listing)
}

// Check compares what is in force with the rules. A cgroup that came, went or was made anew since
// Apply makes another state of it, since nft knows cgroups by number.
func (f Firewall) Check(ctx context.Context, r Rules) (State, error) {
	r = f.present(r)
	script, err := r.Script()
	if err != nil {
		return "", err
	}
	listing, err := f.listing(ctx)
	switch {
	case err != nil:
		return "", err
	case listing == "":
		return Absent, nil
	}
	applied, err := os.ReadFile(f.Applied)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Other, nil
	case err != nil:
		return "", err
	case string(applied) != record(script, listing):
		return Other, nil
	}
	if r.needsSource() {
		if there, err := f.hasSource(ctx); err != nil || !there {
			return Partial, err
		}
	}
	if r.Mode == TProxy && !r.Inbound.Off {
		for _, family := range r.families() {
			if there, err := f.hasRule(ctx, family); err != nil || !there {
				return Partial, err
			}
		}
	}
	return InForce, nil
}

// Refuses says whether there are rules, which refuse connections while no sidecar takes them.
func (f Firewall) Refuses(ctx context.Context, r Rules) bool {
	state, err := f.Check(ctx, r)
	return err == nil && state != Absent
}

// Remove takes away all that Apply has put there, and nothing else. It succeeds if there is nothing.
func (f Firewall) Remove(ctx context.Context) error {
	if _, err := f.run(ctx, "table "+Table+"\ndelete table "+Table+"\n", "nft", "-f", "-"); err != nil {
		return err
	}
	if err := errors.Join(f.removeRoutes(ctx), f.removeSource(ctx)); err != nil {
		return err
	}
	if err := os.Remove(f.Applied); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// ErrRules means that the packet filter does not take the rules, or is missing.
var ErrRules = errors.New("the packet filter does not take the rules")

// Try says whether the packet filter takes the rules. It changes nothing.
func (f Firewall) Try(ctx context.Context, r Rules) error {
	script, err := f.present(r).Script()
	if err != nil {
		return err
	}
	if _, err := f.run(ctx, "", "nft", "list", "tables"); err != nil {
		return err
	}
	if _, err := f.run(ctx, script, "nft", "--check", "-f", "-"); err != nil {
		return fmt.Errorf("%w: %w", ErrRules, err)
	}
	return nil
}

// Others returns the tables of others that redirect connections to ports of this machine, in
// order.
func (f Firewall) Others(ctx context.Context) []string {
	text, err := f.run(ctx, "", "nft", "-s", "-n", "list", "ruleset")
	if err != nil {
		return nil
	}
	var out []string
	table := ""
	for line := range strings.Lines(text) {
		if name, ok := strings.CutPrefix(strings.TrimSuffix(strings.TrimSpace(line), " {"), "table "); ok {
			table = name
		}
		if redirects := strings.Contains(line, "redirect to ") || strings.Contains(line, "REDIRECT"); redirects && table != Table {
			out = append(out, table)
		}
	}
	return sorted(out)
}

// present returns rules without cgroups that are not there: nft refuses these.
func (f Firewall) present(r Rules) Rules {
	r.Except.Cgroups = slices.DeleteFunc(slices.Clone(r.Except.Cgroups), func(path string) bool {
		_, err := os.Stat(filepath.Join("/sys/fs/cgroup", path))
		return err != nil && filepath.IsLocal(path)
	})
	return r
}

// listing returns the table as the packet filter has it, without counters; empty for none.
func (f Firewall) listing(ctx context.Context) (string, error) {
	tables, err := f.run(ctx, "", "nft", "list", "tables")
	if err != nil || !slices.Contains(strings.Split(tables, "\n"), "table "+Table) {
		return "", err
	}
	return f.run(ctx, "", append([]string{"nft", "-s", "-n", "list", "table"}, strings.Fields(Table)...)...)
}

// record is the content of the file of what was applied.
func record(script, listing string) string {
	return script + "# the packet filter lists it as\n" + listing
}

func (f Firewall) remember(script, listing string) error {
	temporary := f.Applied + ".new"
	if err := os.MkdirAll(filepath.Dir(f.Applied), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(temporary, []byte(record(script, listing)), 0o644); err != nil {
		return err
	}
	return os.Rename(temporary, f.Applied)
}

// families are the options of ip for the families of the rules.
func (r Rules) families() []string {
	switch {
	case r.IPv4 == r.IPv6:
		return []string{"-4", "-6"}
	case r.IPv4:
		return []string{"-4"}
	}
	return []string{"-6"}
}

// addRoutes has packets with the mark delivered on the machine itself.
func (f Firewall) addRoutes(ctx context.Context, r Rules) error {
	for _, family := range r.families() {
		if _, err := f.run(ctx, "", "ip", family, "route", "replace", "local", "default", "dev", "lo", "table", strconv.Itoa(routes)); err != nil {
			return err
		}
		there, err := f.hasRule(ctx, family)
		if err != nil {
			return err
		}
		if there {
			continue
		}
		if _, err := f.run(ctx, "", "ip", family, "rule", "add", "fwmark", strconv.Itoa(mark), "lookup", strconv.Itoa(routes)); err != nil {
			return err
		}
	}
	return nil
}

// addSource adds the IPv6 address from which a sidecar calls the application. Every machine has
// that of IPv4.
func (f Firewall) addSource(ctx context.Context, r Rules) error {
	if !r.needsSource() {
		return f.removeSource(ctx)
	}
	_, err := f.run(ctx, "", "ip", "-6", "address", "replace", from6+"/128", "dev", "lo")
	return err
}

func (f Firewall) removeSource(ctx context.Context) error {
	there, err := f.hasSource(ctx)
	if err != nil || !there {
		return err
	}
	_, err = f.run(ctx, "", "ip", "-6", "address", "delete", from6+"/128", "dev", "lo")
	return err
}

// hasSource says whether the machine has that address.
func (f Firewall) hasSource(ctx context.Context) (bool, error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return false, nil // then it was not added
	}
	there, err := f.run(ctx, "", "ip", "-6", "address", "show", "dev", "lo", "to", from6+"/128")
	return strings.TrimSpace(there) != "", err
}

// needsSource says whether the sidecar calls the application over IPv6.
func (r Rules) needsSource() bool { return !r.Inbound.Off && slices.Contains(r.families(), "-6") }

// hasRule says whether packets with the mark are routed by the table.
func (f Firewall) hasRule(ctx context.Context, family string) (bool, error) {
	rules, err := f.run(ctx, "", "ip", family, "rule", "list", "fwmark", strconv.Itoa(mark), "table", strconv.Itoa(routes))
	return strings.TrimSpace(rules) != "", err
}

func (f Firewall) removeRoutes(ctx context.Context) error {
	if _, err := exec.LookPath("ip"); err != nil {
		return nil // then none was added
	}
	for _, family := range []string{"-4", "-6"} {
		there, err := f.hasRule(ctx, family)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		for _, command := range [][]string{
			{"rule", "del", "fwmark", strconv.Itoa(mark), "lookup", strconv.Itoa(routes)},
			{"route", "flush", "table", strconv.Itoa(routes)},
		} {
			if _, err := f.run(ctx, "", append([]string{"ip", family}, command...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// run runs a program with an input, and returns its output.
func (f Firewall) run(ctx context.Context, input string, command ...string) (string, error) {
	command = append(slices.Clone(f.In), command...)
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stdin = strings.NewReader(input)
	var out, problem bytes.Buffer
	c.Stdout, c.Stderr = &out, &problem
	if err := c.Run(); err != nil {
		text := strings.TrimSpace(problem.String())
		if errors.Is(err, exec.ErrNotFound) {
			text = "install the package nftables (and iproute2 for TPROXY)"
		}
		return "", fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, text)
	}
	return out.String(), nil
}
