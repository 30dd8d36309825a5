package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
)

// Watch hands over an object as it is and then each time that it changes, until the context ends or
// nobody tells any more.
func Watch[T any](ctx context.Context, c Client, kind, name string, seen func(T)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	args := []string{"get", kind, name, "--watch", "--output", "json"}
	cmd := exec.CommandContext(ctx, c.Kubectl, append([]string{"--kubeconfig", c.Kubeconfig, "--namespace", c.Namespace}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	objects, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = each(objects, seen)
	stop()
	if waited := cmd.Wait(); err == nil && stderr.Len() > 0 {
		err = &Error{Args: args, Stderr: stderr.String(), Err: waited}
	}
	return err
}

// each reads objects that are printed one after the other.
func each[T any](text io.Reader, seen func(T)) error {
	objects := json.NewDecoder(text)
	for {
		var object T
		switch err := objects.Decode(&object); {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF): // the watch ended, perhaps in the middle of an object
			return nil
		case err != nil:
			return fmt.Errorf("read what a watch printed: %w", err)
		}
		seen(object)
	}
}
