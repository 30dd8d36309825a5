// Package kube drives a cluster through the kubectl program, as an operator would: what it reads is
// what `kubectl get -o json` prints, decoded into the few fields that the tests look at.
package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Client runs kubectl against one cluster and one namespace.
type Client struct {
	Kubectl    string
	Kubeconfig string
	// Namespace is where namespaced objects are; empty means that of the kubeconfig.
	Namespace string
	// Log gets a line for everything that takes long enough to make a reader wonder.
	Log func(format string, args ...any)
}

// Cache returns the folder where `make cluster` keeps what it builds and runs.
func Cache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "cloudblock-csi"), nil
}

// FromEnvironment returns a client for the cluster that KUBECONFIG and KUBECTL name; the defaults are
// the cluster of `make cluster` and the kubectl that came with it.
func FromEnvironment(getenv func(string) string) (Client, error) {
	cache, err := Cache()
	if err != nil {
		return Client{}, err
	}
	c := Client{Kubectl: getenv("KUBECTL"), Kubeconfig: getenv("KUBECONFIG"), Log: func(string, ...any) {}}
	if c.Kubeconfig == "" {
		c.Kubeconfig = filepath.Join(cache, "cluster", "kubeconfig")
	}
	if c.Kubectl == "" {
		c.Kubectl = filepath.Join(cache, "cluster", "bin", "kubectl")
	}
	return c, nil
}

// MountedExt4Grows says whether root on this machine, which holds all nodes of a cluster of
// `make cluster`, has what the kernel asks for before it grows a mounted ext4: CAP_SYS_RESOURCE.
func MountedExt4Grows() (bool, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(rest), 16, 64)
			return set>>24&1 == 1, err // CAP_SYS_RESOURCE is 24
		}
	}
	return false, errors.New("/proc/self/status has no CapBnd line")
}

// In returns the same client for another namespace.
func (c Client) In(namespace string) Client {
	c.Namespace = namespace
	return c
}

// Run runs kubectl and returns what it printed. The error holds what it complained about.
func (c Client) Run(ctx context.Context, args ...string) (string, error) {
	return c.feed(ctx, nil, args...)
}

func (c Client) feed(ctx context.Context, stdin []byte, args ...string) (string, error) {
	full := []string{"--kubeconfig", c.Kubeconfig}
	if c.Namespace != "" {
		full = append(full, "--namespace", c.Namespace)
	}
	cmd := exec.CommandContext(ctx, c.Kubectl, append(full, args...)...)
	cmd.Stdin = bytes.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), &Error{Args: args, Stderr: strings.TrimSpace(stderr.String()), Err: err}
	}
	return stdout.String(), nil
}

// Error is a kubectl that did not succeed.
type Error struct {
	Args   []string
	Stderr string
	Err    error
}

func (e *Error) Error() string {
	return fmt.Sprintf("kubectl %s: %v: %s", strings.Join(e.Args, " "), e.Err, e.Stderr)
}

func (e *Error) Unwrap() error { return e.Err }

// Get reads one object.
func Get[T any](ctx context.Context, c Client, kind, name string) (T, error) {
	var object T
	text, err := c.Run(ctx, "get", kind, name, "--output", "json")
	if err != nil {
		return object, err
	}
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		return object, fmt.Errorf("read %s %s: %w", kind, name, err)
	}
	return object, nil
}

// List reads all objects of a kind that fit the further arguments, such as a selector.
func List[T any](ctx context.Context, c Client, kind string, args ...string) ([]T, error) {
	text, err := c.Run(ctx, append([]string{"get", kind, "--output", "json"}, args...)...)
	if err != nil {
		return nil, err
	}
	var list struct{ Items []T }
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, fmt.Errorf("read the list of %s: %w", kind, err)
	}
	return list.Items, nil
}

// Exists says whether an object is there.
func (c Client) Exists(ctx context.Context, kind, name string) (bool, error) {
	text, err := c.Run(ctx, "get", kind, name, "--ignore-not-found", "--output", "name")
	return strings.TrimSpace(text) != "", err
}

// Apply applies a file and returns what it named.
func (c Client) Apply(ctx context.Context, path string) ([]Object, error) {
	text, err := c.Run(ctx, "apply", "--filename", path, "--output", "json")
	if err != nil {
		return nil, err
	}
	return decode(text)
}

// Read returns the objects of a kind that a file holds, whole.
func (c Client) Read(ctx context.Context, path, kind string) ([]json.RawMessage, error) {
	text, err := c.Run(ctx, "create", "--dry-run=client", "--output", "json", "--filename", path)
	if err != nil {
		return nil, err
	}
	var found []json.RawMessage
	objects := json.NewDecoder(strings.NewReader(text)) // several are printed one after the other
	for objects.More() {
		var raw json.RawMessage
		if err := objects.Decode(&raw); err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		inner, err := unlist(raw, kind)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", path, err)
		}
		found = append(found, inner...)
	}
	return found, nil
}

// unlist returns the objects of a kind in what may be a list or one object.
func unlist(raw json.RawMessage, kind string) ([]json.RawMessage, error) {
	var either struct {
		Kind  string
		Items []json.RawMessage
	}
	if err := json.Unmarshal(raw, &either); err != nil {
		return nil, err
	}
	if either.Kind == kind {
		return []json.RawMessage{raw}, nil
	}
	var found []json.RawMessage
	for _, item := range either.Items {
		inner, err := unlist(item, kind)
		if err != nil {
			return nil, err
		}
		found = append(found, inner...)
	}
	return found, nil
}

// Create creates an object of the test's own.
func (c Client) Create(ctx context.Context, object any) error { return c.Send(ctx, object, "create") }

// Send runs a command of kubectl that reads an object.
func (c Client) Send(ctx context.Context, object any, args ...string) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = c.feed(ctx, body, append(args, "--filename", "-")...)
	return err
}

// decode reads one object or a list of them.
func decode(text string) ([]Object, error) {
	var either struct {
		Object
		Items []Object
	}
	if err := json.Unmarshal([]byte(text), &either); err != nil {
		return nil, fmt.Errorf("read what kubectl printed: %w", err)
	}
	if either.Kind == "List" {
		return either.Items, nil
	}
	return []Object{either.Object}, nil
}

// Delete asks for the end of objects and does not wait for it; one that is gone is no error.
func (c Client) Delete(ctx context.Context, args ...string) error {
	_, err := c.Run(ctx, append([]string{"delete", "--ignore-not-found", "--wait=false"}, args...)...)
	return err
}

// Exec runs a shell script in a pod's container; an empty name is its first.
func (c Client) Exec(ctx context.Context, pod, container, script string) (string, error) {
	return c.ExecArgs(ctx, pod, container, "sh", "-euc", script)
}

// ExecArgs runs a program in a pod's container; an empty name is its first.
func (c Client) ExecArgs(ctx context.Context, pod, container string, args ...string) (string, error) {
	full := []string{"exec", pod}
	if container != "" {
		full = append(full, "--container", container)
	}
	return c.Run(ctx, append(append(full, "--"), args...)...)
}
