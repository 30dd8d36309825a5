// Command chaos is a model-based tester of the controller. It plays the stock sidecars, the kubelet and
// the users of a small cluster against one cloud: three volumes and more, two machines, random calls
// with random faults of the cloud, controllers that are killed in the middle of a call. A model says
// what must hold at all times and what must be left when everything was deleted: nothing.
//
//	chaos -cloud digitalocean -runs 1000 -seed 1 -controllers 2
//
// Each run lives in simulated time (testing/synctest) with every connection in memory, so that an hour
// of waiting costs milliseconds and a seed repeats. A run that fails is shrunk: steps and faults are left
// out for as long as it still fails, and the shortest history is printed. docs/contributing/testing.md says how to read
// it and how to add a cloud.
//
// This package counts and shrinks runs. What a run does is drawn in plan, what goes wrong in trouble; world is the
// account, controllers are what is killed, and sim plays all that and holds it against the model.
package main
