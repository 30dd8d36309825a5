// Package fault defines the kinds of failure that all layers share.
//
// A layer wraps the kind first and the cause second,
//
//	fmt.Errorf("attach %s to %s: %w: %w", volume, node, fault.Busy, err)
//
// and the layer above matches it with errors.Is or Of. Only internal/driver maps kinds to gRPC codes.
package fault

import "errors"

// Kind is one kind of failure. It is an error itself, so it can be wrapped and matched.
type Kind string

// Error returns the kind as text.
func (k Kind) Error() string { return string(k) }

// The kinds. docs/contributing/architecture.md has the gRPC code of each.
const (
	// None is what Of returns for an error without a kind.
	None Kind = ""
	// InvalidArgument: the request can never succeed as it is.
	InvalidArgument Kind = "invalid request"
	// NotFound: the object the request names does not exist.
	NotFound Kind = "not found"
	// Conflict: the name is taken by an object with other properties.
	Conflict Kind = "already exists with other properties"
	// Exhausted: a quota is used up, or a pool or a node is full.
	Exhausted Kind = "no room left"
	// Precondition: the state of the object forbids the change until that state is changed.
	Precondition Kind = "state forbids it"
	// Busy: another change of the same object is under way; a later repeat can succeed.
	Busy Kind = "another change is under way"
	// OutOfRange: a size is outside of the possible range.
	OutOfRange Kind = "out of range"
	// Denied: the credentials do not allow it, or are missing.
	Denied Kind = "access denied"
	// StalePage: a page token is not, or no longer, a position in the list.
	StalePage Kind = "page token is not valid"
	// Unsupported: this backend cannot do it at all.
	Unsupported Kind = "not supported"
	// Unavailable: the call failed and changed nothing; a repeat may succeed.
	Unavailable Kind = "unavailable"
	// Uncertain: the write was sent and its outcome is unknown. It outranks every other kind, because a caller that treats the
	// outcome as final forgets an object that may exist.
	Uncertain Kind = "outcome unknown"
)

// Of returns the kind of err: Uncertain if it is anywhere in the tree of wrapped errors, else the outermost kind, depth first, and
// None if there is no kind.
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

// FromCloud reports whether err wraps an answer of a cloud, which has a method FromCloud. Other errors come from the program's own
// checks of a request that it has not sent.
func FromCloud(err error) bool {
	var answer interface{ FromCloud() }
	return errors.As(err, &answer)
}
