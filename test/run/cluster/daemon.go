package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// daemon is a program that goes on running after this one ended, inside a machine or on this one.
type daemon struct {
	name  string
	log   string
	pid   int
	ended chan struct{} // closed when it ended
}

// start runs a program inside the machine, with its output in logs/<machine>/<name>.log.
func (m machine) start(l layout, name string, args ...string) (*daemon, error) {
	return launch(l, m.Name, filepath.Base(name), m.command(context.Background(), name, args...)) // it outlives this program
}

// launch starts a program that goes on when this one has ended, with its output in logs/<where>/<name>.log.
func launch(l layout, where, name string, cmd *exec.Cmd) (*daemon, error) {
	log, err := openLog(l, where, name)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(daemonEnvironment(), cmd.Env...)
	// Of its own session: Ctrl-C here must not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	d := &daemon{name: where + "/" + name, log: log.Name(), pid: cmd.Process.Pid, ended: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(d.ended)
	}()
	return d, nil
}

// daemonEnvironment is the same on every machine; above all no proxy of this one is asked for
// addresses that exist only inside.
func daemonEnvironment() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
}

// ready waits until check succeeds; a daemon that ends meanwhile ends the wait, with its log.
func (d *daemon) ready(ctx context.Context, limit time.Duration, check func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-d.ended:
			cancel(errors.New("it ended"))
		case <-ctx.Done():
		}
	}()
	if err := waitFor(ctx, d.name, limit, check); err != nil {
		return fmt.Errorf("%w; the end of %s:\n%s", err, d.log, tail(d.log))
	}
	return nil
}

// waitFor calls check on a short beat until it succeeds or the limit is over.
func waitFor(ctx context.Context, what string, limit time.Duration, check func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not ready after %s", limit))
	defer cancel()
	beat := time.NewTicker(100 * time.Millisecond)
	defer beat.Stop()
	var last error
	for {
		err := check(limited)
		if err == nil {
			return nil
		}
		if last == nil || limited.Err() == nil {
			last = err // what the end of the wait itself makes of a check says nothing
		}
		select {
		case <-limited.Done():
			return fmt.Errorf("%s: %w (last: %w)", what, context.Cause(limited), last)
		case <-beat.C:
		}
	}
}

// runCommand runs a command to its end; the error says what it printed.
func runCommand(cmd *exec.Cmd) error {
	_, err := output(cmd)
	return err
}

// output is what a command printed to its standard output.
func output(cmd *exec.Cmd) (string, error) {
	var out, problems bytes.Buffer
	if cmd.Stdout == nil {
		cmd.Stdout = &out
	}
	cmd.Stderr = &problems
	if err := cmd.Run(); err != nil {
		said := strings.TrimSpace(problems.String() + out.String())
		return "", fmt.Errorf("%s: %w: %s", shortCommand(cmd.Args), err, said)
	}
	return out.String(), nil
}

// shortCommand is a command without the words that bring it into a machine.
func shortCommand(args []string) string {
	for i, arg := range args {
		if arg == "nsenter" {
			for j, inner := range args[i:] {
				if inner == "--" {
					return strings.Join(args[i+j+1:], " ")
				}
			}
		}
	}
	return strings.Join(args, " ")
}

func openLog(l layout, machine, name string) (*os.File, error) {
	if err := os.MkdirAll(l.logs(machine), 0o755); err != nil {
		return nil, err
	}
	return os.OpenFile(l.logs(machine, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// tail is the last lines of a log.
func tail(path string) string {
	const lines = 25
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	return "  " + strings.Join(all[max(0, len(all)-lines):], "\n  ")
}

// steps prints what is being done and how long each step took.
type steps struct {
	out   io.Writer
	begin time.Time
}

// do runs one step. A slow one tells in between that it still runs.
func (s *steps) do(what string, step func() error) error {
	return s.follow(what, func() string { return "" }, step)
}

// follow runs one step that can tell how far it is.
func (s *steps) follow(what string, progress func() string, step func() error) error {
	begin := time.Now()
	done := make(chan error, 1)
	go func() { done <- step() }()
	beat := time.NewTicker(15 * time.Second)
	defer beat.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return fmt.Errorf("%s: %w", what, err)
			}
			fmt.Fprintf(s.out, "%8.1f s  %s\n", time.Since(begin).Seconds(), what)
			return nil
		case <-beat.C:
			fmt.Fprintf(s.out, "         …  %s: %s so far%s\n", what, time.Since(begin).Round(time.Second), progress())
		}
	}
}

// say prints a line in the column of what was done.
func (s *steps) say(format string, args ...any) {
	fmt.Fprintf(s.out, "            "+format+"\n", args...)
}
