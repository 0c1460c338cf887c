package cache

import (
	"log/slog"
	"time"
)

// Problem is something wrong with what a source of configuration holds.
type Problem struct {
	// Where is the place in the source, such as a file and a document; empty where Object
	// says enough.
	Where string
	// Object is the Key.String of the object, or words for it; empty where none is known.
	Object  string
	Message string
	Since   time.Time
	// Serving says that the last good content is served.
	Serving bool
	// Warning says that the object is served as it is now.
	Warning bool
}

// String is the whole problem in a line, without its time.
func (p Problem) String() string { return p.Subject() + ": " + p.Message }

// Subject is what has the problem.
func (p Problem) Subject() string {
	switch {
	case p.Where == "":
		return p.Object
	case p.Object == "":
		return p.Where
	}
	return p.Where + ": " + p.Object
}

// maxLogged bounds the problems that are logged for one snapshot, those that are new and
// those that are solved.
const maxLogged = 10

// LogProblems logs the problems that a snapshot of a source has brought and solved.
func LogProblems(log *slog.Logger, added, solved []Problem) {
	for _, p := range added[:min(len(added), maxLogged)] {
		log.Warn("configuration is at fault", "problem", p.String(), "kept", p.Serving)
	}
	if more := len(added) - maxLogged; more > 0 {
		log.Warn("more configuration is at fault", "problems", more)
	}
	for _, p := range solved[:min(len(solved), maxLogged)] {
		log.Info("a fault of configuration is gone", "of", p.Subject())
	}
	if more := len(solved) - maxLogged; more > 0 {
		log.Info("more faults of configuration are gone", "problems", more)
	}
}
