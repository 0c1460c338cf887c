package command

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/pflag"

	"github.com/portolan-mesh/portolan/cmd/portolan/help"
	"github.com/portolan-mesh/portolan/cmd/portolan/serve/loglevel"
)

// logFlags holds the flags of the log.
type logFlags struct{ levels, format string }

// The forms of the log.
const (
	textLog = "text"
	jsonLog = "json"
)

func (o *logFlags) register(f *pflag.FlagSet) {
	var components []string
	for _, c := range loglevel.Components() {
		components = append(components, string(c))
	}
	f.StringVar(&o.levels, "log-level", "info", help.Alternatives(loglevel.Words)+", for all components of the server or for some, as in info,xds=debug; portolan server log-level changes it later. debug for all leaves out that of etcd, which has some lines for each transaction. The components are "+strings.Join(components, ", "))
	o.registerFormat(f)
}

func (o *logFlags) registerFormat(f *pflag.FlagSet) {
	f.StringVar(&o.format, "log-format", textLog, "text, or json: an object in each line, with the same keys")
}

func (o *logFlags) validate(add addFault) {
	var many *multierror.Error
	if _, err := loglevel.Parse(o.levels); errors.As(err, &many) {
		for _, fault := range many.Errors {
			add("log-level", "%v", fault)
		}
	}
	if err := o.checkFormat(); err != nil {
		add("log-format", "%v", err)
	}
}

func (o *logFlags) checkFormat() error {
	if o.format != textLog && o.format != jsonLog {
		return fmt.Errorf("%q is neither text nor json", o.format)
	}
	return nil
}

// logger requires valid flags.
func (o *logFlags) logger(to io.Writer) (*slog.Logger, *loglevel.Levels) {
	spec, _ := loglevel.Parse(o.levels)
	levels := loglevel.New(spec)
	all := &slog.HandlerOptions{Level: slog.LevelDebug}
	var handler slog.Handler = slog.NewTextHandler(to, all)
	if o.format == jsonLog {
		handler = slog.NewJSONHandler(to, all)
	}
	return slog.New(loglevel.NewHandler(handler, levels)), levels
}
