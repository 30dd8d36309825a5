package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestReadyEndsWithTheDaemon(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(log, []byte("first\nwhy it ended\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &daemon{name: "node-1/kubelet", log: log, ended: make(chan struct{})}
	close(d.ended)
	err := d.ready(t.Context(), time.Minute, func(context.Context) error { return errors.New("connection refused") })
	for _, want := range []string{"node-1/kubelet", "it ended", "connection refused", "why it ended"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ready = %v, want it to tell %q", err, want)
		}
	}
}

func TestWaitForTellsTheLastReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := waitFor(t.Context(), "the API server", 250*time.Millisecond, func(ctx context.Context) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errors.New("it says 503")
		})
		if err == nil || !strings.Contains(err.Error(), "the API server: not ready after 250ms (last: it says 503)") {
			t.Errorf("waitFor = %v", err)
		}
	})
}

func TestACommandsErrorTellsWhatItSaid(t *testing.T) {
	m := machine{Name: "node-1", Holder: 1}
	named := shortCommand(m.command(t.Context(), "mount", "a", "b").Args)
	if named != "mount a b" {
		t.Errorf("a command inside a machine is called %q", named)
	}
	err := runCommand(exec.CommandContext(t.Context(), "ls", "/nowhere/at/all"))
	if err == nil || !strings.Contains(err.Error(), "/nowhere/at/all") || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("runCommand = %v", err)
	}
}

func TestAProcessIsKnownByItsStartTime(t *testing.T) {
	started, err := startTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	us := machine{Name: "us", Holder: os.Getpid(), Started: started}
	another := machine{Name: "another", Holder: os.Getpid(), Started: started + "1"}
	if !us.alive() || another.alive() {
		t.Errorf("alive = %v and %v, want true and false: the second is a process id used again", us.alive(), another.alive())
	}
}
