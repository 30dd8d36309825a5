// Package fault names the kinds of failure that every layer shares.
//
// A layer wraps the kind first and the cause second,
//
//	fmt.Errorf("attach %s to %s: %w: %w", volume, node, fault.Busy, err)
//
// and the layer above matches it with errors.Is or Of. Only internal/driver knows which gRPC code
// a kind becomes.
package fault

import "errors"

// Kind is one kind of failure. It is an error itself, so it can be wrapped and matched.
type Kind string

// Error returns the kind's own words.
func (k Kind) Error() string { return string(k) }

// The kinds. docs/architecture.md has the gRPC code of each.
const (
	// None is what Of returns for an error that carries no kind.
	None Kind = ""
	// InvalidArgument: the request can never succeed as it is.
	InvalidArgument Kind = "invalid argument"
	// NotFound: the object the request names does not exist.
	NotFound Kind = "not found"
	// Conflict: the name is taken by an object with other properties.
	Conflict Kind = "already exists with other properties"
	// Exhausted: a quota, a pool or a machine is full.
	Exhausted Kind = "no room left"
	// Precondition: the state of the object forbids the change until somebody changes that state.
	Precondition Kind = "state forbids it"
	// Busy: another change of the same object is under way; the same call later will do.
	Busy Kind = "another change is under way"
	// OutOfRange: a size outside what is possible.
	OutOfRange Kind = "out of range"
	// Denied: the credentials do not allow it, or are missing.
	Denied Kind = "access denied"
	// StalePage: a page token that no longer, or never, names a place in the list.
	StalePage Kind = "page token is not valid"
	// Unsupported: this backend cannot do it at all.
	Unsupported Kind = "not supported"
	// Unavailable: it did not work now and nothing was changed; trying again may help.
	Unavailable Kind = "unavailable"
	// Uncertain: the write was sent and its outcome is not known. It outranks every other kind,
	// because a caller that takes the outcome for final forgets something that may exist.
	Uncertain Kind = "outcome unknown"
)

// Of returns the kind that err carries: Uncertain if it is anywhere in the tree of wrapped errors,
// else the outermost kind, depth first, and None if there is no kind at all.
func Of(err error) Kind {
	if errors.Is(err, Uncertain) {
		return Uncertain
	}
	var k Kind
	if errors.As(err, &k) {
		return k
	}
	return None
}

// FromCloud reports whether err wraps what a cloud answered, which has a method FromCloud to say so.
// Without an answer it is the program's own word, of a request that it has not sent.
func FromCloud(err error) bool {
	var answer interface{ FromCloud() }
	return errors.As(err, &answer)
}
