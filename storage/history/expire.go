package history

import (
	"fmt"
	"time"

	"github.com/portolan-mesh/portolan/storage"
	"github.com/portolan-mesh/portolan/storage/config"
)

// CheckRetention refuses a retention that nobody can have meant.
func CheckRetention(r storage.Retention) error {
	if r.Keep < 1 || r.Deleted < 0 {
		return fmt.Errorf("%w: a retention of %d changes, and of %v for deleted objects: keep at least 1 change, for 0 (for ever) or longer",
			storage.ErrInvalid, r.Keep, r.Deleted)
	}
	return nil
}

// Expired returns the positions of the records that may be removed. records are all
// records, newest first, and live says which objects exist. An expired record stays
// expired, whatever is written and whichever server removes records meanwhile: no server
// removes the newest Keep entries of an object.
func Expired(records []Record, live func(config.Key) bool, r storage.Retention, now time.Time) []int {
	newer := map[config.Key]int{}        // entries that were seen
	newest := map[config.Key]time.Time{} // time of the first of them
	past := func(key config.Key, at time.Time) bool {
		if newer[key] == 0 {
			newest[key] = at
		}
		newer[key]++
		return newer[key] > r.Keep ||
			r.Deleted > 0 && now.Sub(newest[key]) >= r.Deleted && !live(key)
	}
	var expired []int
	for i, record := range records {
		may := now.Sub(record.Time) >= storage.HistoryGrace
		for _, e := range record.Entries {
			may = past(e.Key, record.Time) && may
		}
		if may {
			expired = append(expired, i)
		}
	}
	return expired
}

// Floors returns the highest revision of each scope among the records at the given
// positions.
func Floors(records []Record, places []int) map[config.Key]int64 {
	floors := map[config.Key]int64{}
	for _, i := range places {
		for _, e := range records[i].Entries {
			scope := Scope(e.Key)
			floors[scope] = max(floors[scope], records[i].Revision)
		}
	}
	return floors
}
