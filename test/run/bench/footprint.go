package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/programs"
)

const mib = 1 << 20

// The bars of the two programs, in MiB.
var bars = map[string]struct{ binary, idle float64 }{
	"controller": {binary: 26, idle: 30},
	"node":       {binary: 16, idle: 20},
}

func sizes(t *table, bin string) error {
	for _, name := range []string{"controller", "node"} {
		info, err := os.Stat(filepath.Join(bin, "cloudblock-"+name))
		if err != nil {
			return err
		}
		t.row(name+" program, stripped", float64(info.Size())/mib, bars[name].binary, "MiB")
	}
	return nil
}

func memory(t *table, pair *programs.Pair) error {
	for name, program := range map[string]*programs.Program{"controller": pair.Controller, "node": pair.Node} {
		rss, err := residentMiB(program.PID())
		if err != nil {
			return err
		}
		t.row(name+" program, resident when idle", rss, bars[name].idle, "MiB")
	}
	return nil
}

// residentMiB reads VmRSS (proc_pid_status(5)).
func residentMiB(pid int) (float64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 64)
			return kib / 1024, err
		}
	}
	return 0, fmt.Errorf("no VmRSS of process %d", pid)
}
