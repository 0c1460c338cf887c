package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"
)

// floorArg makes this program run the floor server.
const floorArg = "floor"

// options are the flags.
type options struct {
	// of the grid
	binary              string
	kubeAPIServer       string
	cells, changes      *regexp.Regexp
	reps                int
	silence, idle, rest time.Duration
	dir, profiles       string
	interception        string
	strict, list        bool
	// of a fleet without a grid
	address, variant string
	proxies, pid     int
	services         int
	change, mark     string
	spread           bool
	timeout          time.Duration
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) == 4 && os.Args[1] == floorArg {
		exit(beFloor(ctx, os.Args[2], os.Args[3]))
		return
	}
	if len(os.Args) == 3 && os.Args[1] == etcdArg {
		exit(beEtcd(ctx, os.Args[2]))
		return
	}
	o := parse()
	switch {
	case o.list:
		for _, c := range grid() {
			fmt.Println(c.name)
		}
	case o.address != "":
		exit(runAgainstServer(ctx, o))
	default:
		exit(measureGrid(ctx, o))
	}
}

func parse() options {
	o := options{}
	cells := flag.String("cells", "", "measure only the cells whose names this regular expression matches")
	changes := flag.String("changes", "", "measure only such changes: endpoint, routes, rule, policy, secret, new, deleted")
	flag.StringVar(&o.binary, "binary", "bin/portolan", "the portolan that is measured")
	flag.StringVar(&o.kubeAPIServer, "kube-apiserver", ".tools/kube-apiserver", "Kubernetes' own API server, for the cell with a cluster; make kube-apiserver builds it")
	flag.IntVar(&o.reps, "reps", 10, "how often each change is made")
	flag.DurationVar(&o.silence, "silence", 500*time.Millisecond, "how long nothing may come for all to be said to be sent")
	flag.DurationVar(&o.rest, "rest", 1500*time.Millisecond, "how long a server is left alone half a second after a change")
	flag.DurationVar(&o.idle, "idle", 20*time.Second, "how long a quiet server is watched")
	flag.StringVar(&o.dir, "dir", "", "where data directories are made; the default is that for temporary files")
	flag.StringVar(&o.profiles, "profiles", "", "a directory for processor profiles of the server, one of each measurement")
	flag.StringVar(&o.interception, "interception", "REDIRECT", "how sidecars get their traffic: node metadata INTERCEPTION_MODE")
	flag.BoolVar(&o.strict, "strict", false, "fail where a target is missed")
	flag.BoolVar(&o.list, "list", false, "name the cells and measure nothing")
	flag.StringVar(&o.address, "address", "", "simulate proxies against the ADS server at HOST:PORT, and measure no grid")
	flag.StringVar(&o.variant, "variant", "delta", "delta or world, with -address")
	flag.IntVar(&o.proxies, "proxies", 1, "how many proxies, with -address")
	flag.IntVar(&o.pid, "pid", 0, "the process of the server, with -address: its processor time and memory are told")
	flag.IntVar(&o.services, "services", 1000, "how many services the mesh has whose proxies are simulated, with -address")
	flag.BoolVar(&o.spread, "spread", false, "proxies of all namespaces, with -address")
	flag.StringVar(&o.change, "change", "", "a command that changes something, with -address; it is given to sh")
	flag.StringVar(&o.mark, "mark", "", "text by which resources that carry the change are known, with -change")
	flag.DurationVar(&o.timeout, "timeout", 5*time.Minute, "how long anything may take")
	flag.Parse()
	o.cells, o.changes = expression("cells", *cells), expression("changes", *changes)
	return o
}

func expression(flag, text string) *regexp.Regexp {
	r, err := regexp.Compile(text)
	if err != nil {
		exit(fmt.Errorf("-%s: %w", flag, err))
	}
	return r
}

func exit(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "load:", err)
		os.Exit(1)
	}
}
