package main

import (
	"context"
	"fmt"
	"os"
)

// status tells what runs.
func status(ctx context.Context, l layout) error {
	s, err := readState(l)
	if err != nil {
		return err
	}
	if len(s.Machines) == 0 {
		fmt.Println("no cluster is running")
		return nil
	}
	for _, m := range s.Machines {
		word := "running"
		if !m.alive() {
			word = "ended"
		}
		fmt.Printf("%-8s %s (process %d), logs in %s\n", m.Name, word, m.Holder, l.logs(m.Name))
	}
	fmt.Printf("export KUBECONFIG=%s\n\n", l.kubeconfig())
	cmd := kubectl(ctx, l, "get", "nodes,pods", "--all-namespaces", "-o", "wide")
	cmd.Stdout = os.Stdout
	return runCommand(cmd)
}
