package driver

import "fmt"

// masked is all that a Secret ever shows.
const masked = "***"

// Secret is a string that no formatting verb, encoder or logger shows.
type Secret struct{ value string }

// NewSecret hides a value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal returns the value, for the one place that hands it on.
func (s Secret) Reveal() string { return s.value }

// String returns "***".
func (Secret) String() string { return masked }

// GoString returns "***".
func (Secret) GoString() string { return masked }

// Format writes "***" whatever the verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(masked)) }

// MarshalText returns "***", also to JSON.
func (Secret) MarshalText() ([]byte, error) { return []byte(masked), nil }
