// Package plan is what a run does: the steps of the users of a small cluster and of what happens to it, drawn from a
// seed.
package plan
