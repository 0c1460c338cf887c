package command

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/serve"
	"github.com/portolan-mesh/portolan/storage/etcd/backup"
	"github.com/portolan-mesh/portolan/storage/etcd/escrow"
)

type backupFlags struct {
	dir      string
	keyFile  string
	without  bool
	interval time.Duration
	keep     int
}

func (o *backupFlags) register(f *pflag.FlagSet) {
	f.StringVar(&o.dir, "backup-dir", "", "directory to which the server saves a backup of the store every --backup-interval; none are made without it")
	f.StringVar(&o.keyFile, "backup-key-file", "", "file of random bytes that wraps the keys in these backups, as for portolan store backup --key-file; read for each of them")
	f.BoolVar(&o.without, "backup-without-keys", false, "leave the keys out of these backups: keep a copy of the sealing keys elsewhere")
	f.DurationVar(&o.interval, "backup-interval", time.Hour, "time from one backup to the next, at least 1m")
	f.IntVar(&o.keep, "backup-keep", 24, "how many of the newest backups of --backup-dir to keep")
}

func (o *backupFlags) validate(given func(flag string) bool, add addFault) {
	if o.dir == "" {
		for _, flag := range []string{"backup-interval", "backup-keep", "backup-key-file", "backup-without-keys"} {
			if given(flag) {
				add(flag, "is of no use without --backup-dir")
			}
		}
		return
	}
	switch _, err := o.envelope(escrow.Keys{}); {
	case o.without && o.keyFile != "":
		add("backup-without-keys", "leaves the keys out, and --backup-key-file wraps them: give one of them")
	case !o.without && o.keyFile == "":
		add("backup-key-file", "is missing: it wraps the keys in the backups, without which a restored store is not whole; or leave them out with --backup-without-keys")
	case err != nil:
		add("backup-key-file", "%v", err)
	}
	if o.interval < time.Minute {
		add("backup-interval", "%s is too short: give at least 1m", o.interval)
	}
	if o.keep < 1 {
		add("backup-keep", "%d: keep at least 1", o.keep)
	}
}

// envelope returns what a backup has besides the snapshot.
func (o *backupFlags) envelope(keys escrow.Keys) (*escrow.Envelope, error) {
	if o.keyFile == "" {
		return escrow.WithoutKeys(), nil
	}
	lock, err := escrow.KeyFile(o.keyFile)
	if err != nil {
		return nil, err
	}
	return escrow.WithKeys(keys, lock)
}

// apply requires valid flags.
func (o *backupFlags) apply(to *serve.Options) {
	if o.dir != "" {
		to.Backup, to.BackupEnvelope = &backup.Schedule{Dir: o.dir, Interval: o.interval, Keep: o.keep}, o.envelope
	}
}
