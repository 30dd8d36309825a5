//go:build e2e

package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestTwoNodeProgramsOnOneNode: of two real programs on one pool the second has no socket until the first has ended, by SIGKILL
// too. So no program undoes the mounts of the other.
func TestTwoNodeProgramsOnOneNode(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		t.Run(signal.String(), func(t *testing.T) {
			dir := tempDir(t)
			binary := build(t, dir)
			first := &program{t: t, dir: dir, binary: binary, name: "first"}
			first.start()
			second := &program{t: t, dir: dir, binary: binary, name: "second"}
			conn, _ := second.launch()
			second.until("the second program waits", func() bool { return strings.Contains(second.log.String(), "another node program") })
			if _, err := os.Lstat(second.socket()); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the second program has its socket while the first one runs: %v", err)
			}
			must(t, first.cmd.Process.Signal(signal))
			second.ready(conn)
			if err := first.cmd.Wait(); (err == nil) != (signal == syscall.SIGTERM) {
				t.Errorf("the first program ended with %v", err)
			}
		})
	}
}

// TestAWaitingNodeProgramStops: a program that waits for another one ends on SIGTERM, without an error.
func TestAWaitingNodeProgramStops(t *testing.T) {
	dir := tempDir(t)
	binary := build(t, dir)
	first := &program{t: t, dir: dir, binary: binary, name: "first"}
	first.start()
	second := &program{t: t, dir: dir, binary: binary, name: "second"}
	second.launch()
	second.until("the second program waits", func() bool { return strings.Contains(second.log.String(), "another node program") })
	must(t, second.cmd.Process.Signal(syscall.SIGTERM))
	if err := second.cmd.Wait(); err != nil {
		t.Errorf("the waiting program ended with %v\n%s", err, second.log.String())
	}
}

// TestChildrenDoNotInheritTheLock: otherwise a mkfs that survives a killed node program would block the next one.
func TestChildrenDoNotInheritTheLock(t *testing.T) {
	dir := tempDir(t)
	fds, programs := filepath.Join(dir, "fds"), filepath.Join(dir, "programs")
	mkfs, err := exec.LookPath("mkfs.ext4")
	must(t, err)
	must(t, os.Mkdir(programs, 0o700))
	script := "#!/bin/sh\nls -l /proc/$$/fd >" + fds + "\nexec " + mkfs + " \"$@\"\n"
	must(t, os.WriteFile(filepath.Join(programs, "mkfs.ext4"), []byte(script), 0o700))
	v := (&program{t: t, dir: dir, binary: build(t, dir), path: programs + ":" + os.Getenv("PATH")}).newVolume()
	must(t, v.stage("ext4"))
	v.gone()
	text, err := os.ReadFile(fds)
	must(t, err)
	if strings.Contains(string(text), filepath.Join(dir, "pool")+"\n") || !strings.Contains(string(text), "->") {
		t.Errorf("the descriptors of mkfs are\n%s, want none of the pool's folder", text)
	}
}
