// Package controllers is the controllers of a run, which are killed and started again: with the driver in this process, in
// simulated time, or as processes of the real program.
package controllers
