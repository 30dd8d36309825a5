package kube

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// Dump prints what one wants to know when something in a namespace went wrong.
func (c Client) Dump(ctx context.Context, w io.Writer) {
	for _, args := range [][]string{
		{"get", "pods,pvc,volumesnapshots", "--output", "wide"},
		{"get", "events", "--sort-by", ".lastTimestamp"},
		{"describe", "pods"},
		{"describe", "pvc"},
		{"get", "pv", "--output", "wide"},
		{"get", "volumesnapshotcontents", "--output", "wide"},
		{"get", "csistoragecapacities", "--all-namespaces"},
	} {
		c.print(ctx, w, args...)
	}
}

// DumpLogs prints the last lines of every container of the pods that a selector names, those of the
// container before a restart too.
func (c Client) DumpLogs(ctx context.Context, w io.Writer, selector string, lines int) {
	c.print(ctx, w, "get", "pods", "--selector", selector, "--output", "wide")
	pods, err := List[Pod](ctx, c, "pods", "--selector", selector)
	if err != nil {
		fmt.Fprintln(w, err)
	}
	for _, p := range pods {
		for _, container := range p.Spec.Containers {
			c.print(ctx, w, "logs", p.Metadata.Name, "--container", container.Name, fmt.Sprintf("--tail=%d", lines))
		}
		if p.Restarts() > 0 {
			c.print(ctx, w, "logs", p.Metadata.Name, "--all-containers", "--previous", "--ignore-errors", fmt.Sprintf("--tail=%d", lines))
		}
	}
}

func (c Client) print(ctx context.Context, w io.Writer, args ...string) {
	text, err := c.Run(ctx, args...)
	fmt.Fprintf(w, "--- kubectl %v\n%s", args, text)
	if err != nil {
		fmt.Fprintln(w, err)
	}
}

// DumpKubelets prints the last lines that the kubelets of a cluster of `make cluster` wrote, without
// those that they write all the time.
func (c Client) DumpKubelets(w io.Writer, lines int) {
	logs, err := filepath.Glob(filepath.Join(filepath.Dir(c.Kubeconfig), "logs", "*", "kubelet.log"))
	if err != nil {
		fmt.Fprintln(w, err)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintln(w, err)
			continue
		}
		var kept []string
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "csi") || strings.Contains(line, "olume") || strings.HasPrefix(line, "E") {
				kept = append(kept, line)
			}
		}
		fmt.Fprintf(w, "--- %s\n%s", path, strings.Join(kept[max(0, len(kept)-lines):], ""))
	}
}
