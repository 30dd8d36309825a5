// Package history lets an emulated cloud answer as it was some time ago, for faults that show a client a
// stale view.
package history

import (
	"slices"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/faults"
)

// Log remembers how to undo the changes of a state S, the last few thousand of them. The zero value is
// empty. It is not safe for concurrent use: the state has a lock anyway.
type Log[S any] struct {
	changes []change[S]
}

type change[S any] struct {
	at   time.Time
	undo func(*S)
}

// most bounds how many changes a stale answer can go back.
const most = 4096

// Note remembers how to undo a change that was just made.
func (l *Log[S]) Note(at time.Time, undo func(*S)) {
	if len(l.changes) >= most {
		l.changes = append(l.changes[:0:0], l.changes[most/2:]...)
	}
	l.changes = append(l.changes, change[S]{at: at, undo: undo})
}

// IsStale reports whether an effect asks for an older state.
func IsStale(e faults.Effect) bool { return e.StaleChanges != 0 || e.StaleAge != clock.Span{} }

// Rewind undoes in a copy of the present state what an effect says a request must not see.
func (l *Log[S]) Rewind(past *S, now time.Time, e faults.Effect) {
	age := e.StaleAge.Pick(0)
	oldest := now.Add(-age)
	for i, change := range slices.Backward(l.changes) {
		byCount := len(l.changes)-i <= e.StaleChanges
		byAge := age > 0 && change.at.After(oldest)
		if !byCount && !byAge {
			return
		}
		change.undo(past)
	}
}

// Put changes a row and notes how to undo that: rows finds the table in a state.
func Put[S any, K comparable, V any](l *Log[S], at time.Time, now *S, rows func(*S) map[K]V, key K, row V) {
	old, had := rows(now)[key]
	rows(now)[key] = row
	l.Note(at, func(s *S) { restore(rows(s), key, old, had) })
}

// Remove deletes a row and notes how to undo that.
func Remove[S any, K comparable, V any](l *Log[S], at time.Time, now *S, rows func(*S) map[K]V, key K) {
	old, had := rows(now)[key]
	delete(rows(now), key)
	l.Note(at, func(s *S) { restore(rows(s), key, old, had) })
}

func restore[K comparable, V any](rows map[K]V, key K, old V, had bool) {
	if had {
		rows[key] = old
	} else {
		delete(rows, key)
	}
}
