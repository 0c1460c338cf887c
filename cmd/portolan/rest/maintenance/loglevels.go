package maintenance

import (
	"context"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/portolan-mesh/portolan/cmd/portolan/rest"
	"github.com/portolan-mesh/portolan/storage/refusal"
)

// LogLevelsPath answers a GET with the LogLevels of the server. A POST of a LogLevelChange, which is
// Private, is answered with those that it named.
const LogLevelsPath = "/apis/portolan.io/v1/log-levels"

// LogLevels are the log levels of components of a server.
type LogLevels struct {
	metav1.TypeMeta `json:",inline"`
	// Items are in the order of their components.
	Items []LogLevel `json:"items"`
}

// A LogLevel is the log level of one component: debug, info, warn or error.
type LogLevel struct {
	Component string `json:"component"`
	Level     string `json:"level"`
	// Was is the level before the change that is answered; else Level.
	Was string `json:"was"`
	// Until is when Level gives way to Then. A level that stays has neither.
	Until time.Time `json:"until,omitzero"`
	Then  string    `json:"then,omitempty"`
}

// A LogLevelChange requests other levels.
type LogLevelChange struct {
	metav1.TypeMeta `json:",inline"`
	// Levels are written as for serve --log-level, such as xds=debug. What they do not name stays.
	Levels string `json:"levels"`
	// For is a duration such as 10m, after which the levels of before return; empty means that
	// the new ones stay.
	For string `json:"for,omitempty"`
}

// Logs has the log levels of a server.
type Logs interface {
	// LogLevels returns the levels of all components.
	LogLevels() []LogLevel
	// SetLogLevels changes levels, for a while or, with a limit of 0, for good, and returns those
	// that it was to change. It returns errors of package storage.
	SetLogLevels(ctx context.Context, levels string, limit time.Duration) ([]LogLevel, error)
}

func (o Options) logLevels(w http.ResponseWriter, _ *http.Request) error {
	rest.WriteJSON(w, http.StatusOK, LogLevels{TypeMeta: typeMeta("LogLevels"), Items: o.Logs.LogLevels()})
	return nil
}

func (o Options) setLogLevels(w http.ResponseWriter, r *http.Request) error {
	var in LogLevelChange
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	var limit time.Duration
	if in.For != "" {
		var err error
		if limit, err = time.ParseDuration(in.For); err != nil || limit <= 0 {
			return refusal.BadRequest(fmt.Sprintf("for: %q is no time above 0 with its unit: give one such as 10m, or leave it out", in.For))
		}
	}
	items, err := o.Logs.SetLogLevels(r.Context(), in.Levels, limit)
	if err != nil {
		return err
	}
	rest.WriteJSON(w, http.StatusOK, LogLevels{TypeMeta: typeMeta("LogLevels"), Items: items})
	return nil
}
