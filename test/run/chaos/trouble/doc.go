// Package trouble is what goes wrong in a run: faults of the cloud, disturbances by the callers and deaths of
// controllers. An injector decides by a seed which call meets what.
package trouble
