package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
)

// needed is what a cluster needs beside Go, in the words of test/require.sh.
var needed = []string{
	"root", "loop", "etcd", "containerd", "ctr", "runc", "/usr/lib/cni/bridge", "busybox", "mkfs.xfs",
	"ip", "iptables", "mount", "unshare", "nsenter", "buildah", "debootstrap",
}

// require says what this machine lacks, all at once and before anything starts.
func require(ctx context.Context, l layout) error {
	cmd := exec.CommandContext(ctx, l.source("test/require.sh"), needed...)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return errors.New("this machine lacks what is listed above")
	}
	return nil
}
