// Command cluster runs a real Kubernetes on this machine: etcd, the API server, the controllers, the
// scheduler and nodes with containerd and kubelets, each machine in namespaces of its own, with the
// stock sidecars, all built from their Go modules and none of it from an image registry.
//
//	go run ./test/run/cluster up [-cloud local] [-nodes 2]   start it, or refresh the running one
//	go run ./test/run/cluster down                           take it down, whatever is left of it
//	go run ./test/run/cluster status                         what runs
//	go run ./test/run/cluster old [-ref COMMIT]              give the nodes an older build's images, too
//	go run ./test/run/cluster build-suite                    build the upstream storage suite
//	go run ./test/run/cluster enter node-1 [command]         a shell on a machine
//
// docs/contributing/testing.md tells more.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/run/cluster/cgroups"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	// As make and sudo hand it on, PATH may lack the administrator's folders.
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin"); err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.New("say what to do: up, down, status, old, build-suite or enter")
	}
	l, err := findLayout()
	if err != nil {
		return err
	}
	switch args[0] {
	case "up":
		o, err := parseOptions(args[1:])
		if err != nil {
			return err
		}
		return up(ctx, l, o)
	case "down":
		return down(ctx, l)
	case "status":
		return status(ctx, l)
	case "old":
		return old(ctx, l, args[1:])
	case "build-suite":
		if err := require(ctx, l); err != nil { // of the cluster that it is for: the build takes minutes
			return err
		}
		suite, err := suiteBuild(ctx, l)
		if err != nil {
			return err
		}
		return suite.run(ctx, l, &steps{out: os.Stdout, begin: time.Now()})
	case "enter":
		return enter(ctx, l, args[1:])
	default:
		return fmt.Errorf("%q is none of up, down, status, old, build-suite and enter", args[0])
	}
}

func parseOptions(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("cluster up", flag.ContinueOnError)
	flags.StringVar(&o.cloud, "cloud", "local", "which of deploy/overlays to apply; "+noDriver+" for Kubernetes alone")
	flags.IntVar(&o.nodes, "nodes", 2, "how many nodes")
	gib := flags.Int64("pool-gib", 16, "size of each node's pool for local volumes, a sparse file")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	o.poolSize = *gib << 30
	if flags.NArg() > 0 || o.nodes < 1 || o.nodes > 9 || *gib < 1 {
		return o, errors.New("up takes no arguments, 1 to 9 nodes and a pool of at least 1 GiB")
	}
	return o, nil
}

// enter runs a command, or a shell, inside a machine.
func enter(ctx context.Context, l layout, args []string) error {
	s, err := readState(l)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return errors.New("say which machine: " + controlName + ", " + nodeName(1) + ", ...")
	}
	m, found := s.machine(args[0])
	if !found || !m.alive() {
		return fmt.Errorf("no machine %q is running", args[0])
	}
	command := []string{"sh"}
	if len(args) > 1 {
		command = args[1:]
	}
	cmd := m.command(ctx, command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd.Run()
}

// status tells what runs, and which programs of it have ended.
func status(ctx context.Context, l layout) error {
	s, err := readState(l)
	if err != nil {
		return err
	}
	if len(s.Machines) == 0 {
		fmt.Println("no cluster is running")
		return nil
	}
	groups, err := cgroups.Hierarchies()
	if err != nil {
		return err
	}
	for _, m := range s.Machines {
		ended, err := m.ended(l, groups)
		switch {
		case err != nil:
			return err
		case !m.alive():
			fmt.Printf("%-8s has ended\n", m.Name)
		case len(ended) > 0:
			fmt.Printf("%-8s runs without %s: see the logs in %s\n", m.Name, strings.Join(ended, ", "), l.logs(m.Name))
		default:
			fmt.Printf("%-8s runs\n", m.Name)
		}
	}
	if s.Emulator != nil && !s.Emulator.alive() {
		fmt.Printf("%-8s has ended: see the logs in %s\n", s.Cloud, l.logs("host"))
	} else if s.Emulator != nil {
		fmt.Printf("%-8s is emulated at http://%s/_emulator/\n", s.Cloud, hostPort(emulatorPort))
	}
	fmt.Printf("export KUBECONFIG=%s\n\n", l.kubeconfig())
	cmd := kubectl(ctx, l, "get", "nodes,pods", "--all-namespaces", "-o", "wide")
	cmd.Stdout = os.Stdout
	return runCommand(cmd)
}

// ended names the programs that were started on a machine, since they have a log, and do not run.
func (m machine) ended(l layout, groups []cgroups.Hierarchy) ([]string, error) {
	pids, err := cgroups.Processes(groups, m.Name)
	if err != nil {
		return nil, err
	}
	var running []string
	for _, pid := range pids {
		if program, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe"); err == nil {
			running = append(running, filepath.Base(program))
		}
	}
	logs, err := filepath.Glob(l.logs(m.Name, "*.log"))
	if err != nil {
		return nil, err
	}
	var ended []string
	for _, log := range logs {
		program := strings.TrimSuffix(filepath.Base(log), ".log")
		if program != namespacesLog && !slices.Contains(running, program) {
			ended = append(ended, program)
		}
	}
	return ended, nil
}
