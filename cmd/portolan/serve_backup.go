package main

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
)

// backupFlags holds the flags for scheduled snapshots of the store.
type backupFlags struct {
	dir      string
	interval time.Duration
	keep     int
}

func (o *backupFlags) register(f *pflag.FlagSet) {
	f.StringVar(&o.dir, "backup-dir", "", "directory to which the server saves a snapshot of the store every --backup-interval; none are made without it")
	f.DurationVar(&o.interval, "backup-interval", time.Hour, "time from one snapshot to the next, at least 1m")
	f.IntVar(&o.keep, "backup-keep", 24, "how many of the newest snapshots of --backup-dir to keep")
}

func (o *backupFlags) validate(given func(flag string) bool, add addFault) {
	if o.dir == "" {
		for _, flag := range []string{"backup-interval", "backup-keep"} {
			if given(flag) {
				add(flag, "is of no use without --backup-dir")
			}
		}
		return
	}
	if o.interval < time.Minute {
		add("backup-interval", "%s is too short: give at least 1m", o.interval)
	}
	if o.keep < 1 {
		add("backup-keep", "%d: keep at least 1", o.keep)
	}
}

// apply sets the options. The flags must be valid.
func (o *backupFlags) apply(to *serve.Options) {
	if o.dir != "" {
		to.Backup = &backup.Schedule{Dir: o.dir, Interval: o.interval, Keep: o.keep}
	}
}
