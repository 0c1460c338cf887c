// Package address finds the addresses of a machine by rules, and follows them: an interface gets
// others by DHCP.
package address

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Of returns the addresses of this machine that rules name, in the order of the rules. A rule is an
// address, a range of addresses (10.0.0.0/8), or the name of a network interface; the latter two
// stand for the addresses of the machine in it, IPv4 before IPv6, without those of one link alone.
// Without rules it is the address from which the machine reaches a server, host:port.
func Of(rules []string, server string) ([]string, error) {
	if len(rules) == 0 {
		ip, err := towards(server)
		return []string{ip}, err
	}
	var out []string
	for _, rule := range rules {
		if _, err := netip.ParseAddr(rule); err == nil {
			out = append(out, rule)
			continue
		}
		found, err := matching(rule)
		if err == nil && len(found) == 0 {
			err = errors.New("the machine has no such address")
		}
		if err != nil {
			return nil, fmt.Errorf("address %s: %w", rule, err)
		}
		out = append(out, found...)
	}
	return slices.Compact(out), nil
}

// Fixed says whether rules are addresses alone, which do not change.
func Fixed(rules []string) bool {
	return len(rules) > 0 && !slices.ContainsFunc(rules, func(rule string) bool {
		_, err := netip.ParseAddr(rule)
		return err != nil
	})
}

// Validate returns an error if a rule cannot be one.
func Validate(rule string) error {
	_, notIP := netip.ParseAddr(rule)
	_, notRange := netip.ParsePrefix(rule)
	name := rule != "" && len(rule) <= 15 && !strings.ContainsAny(rule, "/: \t\n") && strings.Trim(rule, "0123456789.") != ""
	if notIP != nil && notRange != nil && !name {
		return errors.New("give an address, a range such as 10.0.0.0/8, or the name of an interface")
	}
	return nil
}

// towards returns the address from which this machine reaches another. It sends nothing.
func towards(server string) (string, error) {
	conn, err := net.Dial("udp", server)
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	return conn.LocalAddr().(*net.UDPAddr).IP.String(), nil
}

// matching returns the machine's addresses in a range or at an interface.
func matching(rule string) ([]string, error) {
	var has []net.Addr
	var err error
	within, isRange := netip.Prefix{}, true
	if within, err = netip.ParsePrefix(rule); err == nil {
		has, err = net.InterfaceAddrs()
	} else {
		isRange = false
		var device *net.Interface
		if device, err = net.InterfaceByName(rule); err == nil {
			has, err = device.Addrs()
		}
	}
	if err != nil {
		return nil, err
	}
	var out []netip.Addr
	for _, one := range has {
		prefix, err := netip.ParsePrefix(one.String())
		if err != nil {
			continue
		}
		ip := prefix.Addr().Unmap()
		if ip.IsLinkLocalUnicast() || isRange && !within.Contains(ip) {
			continue
		}
		out = append(out, ip)
	}
	slices.SortFunc(out, netip.Addr.Compare)
	var text []string
	for _, ip := range out {
		text = append(text, ip.String())
	}
	return text, nil
}

// Beside returns the addresses of this machine at the interfaces of known ones, of a family that none
// of these has, without those of one link alone. It returns none if it cannot look.
func Beside(known []string) (out []string) {
	has := map[bool]bool{} // whether one is of IPv6
	for _, ip := range known {
		has[strings.Contains(ip, ":")] = true
	}
	devices, _ := net.Interfaces()
	for _, d := range devices {
		at, err := matching(d.Name)
		if err != nil || !slices.ContainsFunc(at, func(ip string) bool { return slices.Contains(known, ip) }) {
			continue
		}
		for _, ip := range at {
			if !has[strings.Contains(ip, ":")] {
				out = append(out, ip)
			}
		}
	}
	return out
}

// lookEvery is how often Follow looks.
const lookEvery = 2 * time.Second

// Follow calls changed with the addresses whenever they are others than before, until ctx ends.
// While the machine has none, it waits: a machine without a network keeps what it had.
func Follow(ctx context.Context, rules []string, server string, before []string, changed func([]string)) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now, err := Of(rules, server)
		if err != nil || slices.Equal(now, before) {
			continue
		}
		before = now
		changed(now)
	}
}
