package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// attach makes a loop device the way an operator would.
func attach(ctx context.Context, image string) (string, error) {
	loop, err := exec.CommandContext(ctx, "losetup", "--direct-io=on", "--find", "--show", image).Output()
	if err != nil {
		return "", fmt.Errorf("losetup: %w", err)
	}
	return strings.TrimSpace(string(loop)), nil
}

// withLoop runs do while the image is mounted through a loop device made by hand.
func withLoop(ctx context.Context, image, mountpoint string, do func() error) (err error) {
	loop, err := attach(ctx, image)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, command(ctx, "losetup", "-d", loop)) }()
	if err := command(ctx, "mount", loop, mountpoint); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, command(ctx, "umount", mountpoint)) }()
	return do()
}

// timed returns how long do takes.
func timed(do func() error) (time.Duration, error) {
	begin := time.Now()
	err := do()
	return time.Since(begin), err
}

// spread writes data in pieces all over a file, so that it is sparse but not empty.
func spread(path string, size, pieces, piece int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	data := make([]byte, piece)
	for i := range data {
		data[i] = byte(i*7 + 1)
	}
	for i := range pieces {
		if _, err := f.WriteAt(data, size/pieces*i); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return errors.Join(f.Sync(), f.Close())
}
