package main

import (
	"fmt"
	"io"
	"time"
)

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
