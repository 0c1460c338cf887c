package cache

import (
	"log/slog"
	"time"
)

// Problem is a problem with the content of a source of configuration.
type Problem struct {
	// Where is the place in the source, such as a file and a document; empty if Object
	// says enough.
	Where string
	// Object is the Key.String of the object, or a description of it; empty if unknown.
	Object  string
	Message string
	Since   time.Time
	// Serving says that the last good content is served.
	Serving bool
	// Warning says that the object is served as it is now.
	Warning bool
	// UID and Generation are those of an object of a cluster. Other problems have none.
	UID        string
	Generation int64
}

// String returns the whole problem in a line, without its time.
func (p Problem) String() string { return p.Subject() + ": " + p.Message }

// Subject returns what has the problem.
func (p Problem) Subject() string {
	switch {
	case p.Where == "":
		return p.Object
	case p.Object == "":
		return p.Where
	}
	return p.Where + ": " + p.Object
}

// maxLogged bounds how many new problems, and how many solved ones, are logged for one
// snapshot.
const maxLogged = 10

// LogProblems logs the problems that a snapshot of a source has added and solved.
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
