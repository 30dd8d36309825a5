package main

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"strconv"
)

// Addresses: one small network joins the control machine, the nodes and, by a veth, this machine;
// each node has a network for its pods.
const (
	apiAddress  = "10.250.0.1"
	apiPort     = "6443"
	hostAddress = "10.250.0.254"
	apiService  = "10.96.0.1" // the first address of the services' network
	podNetworks = "10.244.0.0/16"
	hostLink    = "cloudblock0"
)

func nodeAddress(number int) string { return fmt.Sprintf("10.250.0.%d", 10+number) }
func podNetwork(number int) string  { return fmt.Sprintf("10.244.%d.0/24", number) }

// joinHost gives this machine one end of a veth into the cluster's network, so that kubectl (and,
// the other way, an emulator that runs here) is reachable. It is all that the host ever sees.
func joinHost(ctx context.Context, control machine) error {
	if linked() {
		return fmt.Errorf("a link %s exists: another cluster runs on this machine; take it down with the user or cache folder that started it, or run: ip link delete %s", hostLink, hostLink)
	}
	for _, args := range [][]string{
		{"link", "add", hostLink, "type", "veth", "peer", "name", "host", "netns", strconv.Itoa(control.Holder)},
		{"address", "add", hostAddress + "/24", "dev", hostLink},
		{"link", "set", hostLink, "up"},
	} {
		if err := runCommand(exec.CommandContext(ctx, "ip", args...)); err != nil {
			return err
		}
	}
	return nil
}

// leaveHost removes the host's end, which the kernel else does some time after the namespace ended.
func leaveHost(ctx context.Context) error {
	if !linked() {
		return nil
	}
	if err := runCommand(exec.CommandContext(ctx, "ip", "link", "delete", hostLink)); err != nil && linked() {
		return err
	}
	return nil
}

// linked tells whether a cluster, this one or another, has its link on this machine.
func linked() bool {
	_, err := net.InterfaceByName(hostLink)
	return err == nil
}
