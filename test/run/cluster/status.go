package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

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
	groups, err := hierarchies()
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
func (m machine) ended(l layout, groups []hierarchy) ([]string, error) {
	pids, err := processesOf(groups, m.Name)
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
