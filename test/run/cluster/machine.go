package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/cluster/cgroups"
)

var (
	//go:embed scripts/mounts.sh
	mountsScript string
	//go:embed scripts/cgroups.sh
	cgroupsScript string
	//go:embed scripts/control-network.sh
	controlNetworkScript string
	//go:embed scripts/host-link.sh
	hostLinkScript string
	//go:embed scripts/node-network.sh
	nodeNetworkScript string
)

// namespacesLog is the log of a machine's holder; every other log is a program's of its name.
const namespacesLog = "namespaces"

// machine is a set of namespaces (network, mounts, processes, cgroups, host name) that look like a
// computer to what runs inside. They live as long as their holder.
type machine struct {
	Name    string `json:"name"`
	Holder  int    `json:"holder"`  // process id of unshare, whose child is process 1 inside
	Started string `json:"started"` // the holder's start time, since process ids are used again
}

// newMachine starts the namespaces and mounts what belongs to the machine in them.
func newMachine(ctx context.Context, l layout, groups []cgroups.Hierarchy, name string) (machine, error) {
	if err := cgroups.Make(groups, name); err != nil {
		return machine{}, err
	}
	log, err := openLog(l, name, namespacesLog)
	if err != nil {
		return machine{}, err
	}
	defer log.Close()
	cmd := exec.Command("sh", "-eu", "-c", cgroups.JoinScript, "join", name,
		"unshare", "--mount", "--net", "--pid", "--uts", "--cgroup", "--fork", "--kill-child", l.bin("pause"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return machine{}, err
	}
	go func() { _ = cmd.Wait() }() // so that its end is seen
	m := machine{Name: name, Holder: cmd.Process.Pid}
	err = waitFor(ctx, "namespaces of "+name, 10*time.Second, func(context.Context) error { return m.ready() })
	if err != nil {
		_ = cmd.Process.Kill()
		return machine{}, fmt.Errorf("%w\n%s", err, tail(log.Name()))
	}
	if m.Started, err = startTime(m.Holder); err != nil {
		return m, err
	}
	if err := m.script(ctx, mountsScript, l.cluster(), name); err != nil {
		return m, err
	}
	if cgroups.V2(groups) {
		if err := cgroups.Settle(groups[0], name); err != nil {
			return m, err
		}
	}
	return m, m.script(ctx, cgroupsScript, cgroups.MountArguments(groups)...)
}

// ready: every namespace is the machine's own, and process 1 exists. One that entered earlier would
// be in the host's namespaces, or would itself be process 1.
func (m machine) ready() error {
	for _, name := range []string{"mnt", "net", "uts", "cgroup", "pid_for_children"} {
		ours, err := os.Readlink("/proc/self/ns/" + name)
		if err != nil {
			return err
		}
		theirs, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", m.Holder, name))
		if err != nil {
			return err
		}
		if ours == theirs {
			return fmt.Errorf("the %s namespace is still the host's", name)
		}
	}
	return nil
}

// alive tells whether the holder still runs and is the one that was started.
func (m machine) alive() bool {
	started, err := startTime(m.Holder)
	return err == nil && started == m.Started
}

// command is a command inside the machine.
func (m machine) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	holder := strconv.Itoa(m.Holder)
	enter := []string{
		"-eu", "-c", cgroups.JoinScript, "join", m.Name, "nsenter", "--target", holder, "--mount", "--net", "--uts", "--cgroup",
		"--pid=/proc/" + holder + "/ns/pid_for_children", "--wdns=/", "--", name,
	}
	return exec.CommandContext(ctx, "sh", append(enter, args...)...)
}

// script runs a shell script inside the machine.
func (m machine) script(ctx context.Context, text string, args ...string) error {
	cmd := m.command(ctx, "sh", append([]string{"-eu", "-s", "--"}, args...)...)
	cmd.Stdin = strings.NewReader(text)
	if err := runCommand(cmd); err != nil {
		return fmt.Errorf("set up %s: %w", m.Name, err)
	}
	return nil
}

// startTime is when a process began, in the kernel's own unit.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", err
	}
	// The name, in brackets, may hold anything; after it the 20th field is the start time.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" {
		return "", errors.New("the process has ended")
	}
	return fields[19], nil
}

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
