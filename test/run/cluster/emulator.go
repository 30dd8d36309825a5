package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

//go:embed scripts/metadata.sh
var metadataScript string

// emulatedClouds are those that have an emulator.
var emulatedClouds = map[string]leading{
	"digitalocean": {Cloud: "digitalocean", Secret: "digitalocean", Key: "access-token", Snapshots: true},
	"linode":       {Cloud: "linode", Secret: "linode", Key: "token"},
	"yandex":       {Cloud: "yandex", Secret: "yandex", Key: "key.json", Snapshots: true, MaxVolumes: 61},
}

// leading is what differs between the clouds' overlays in the changes that lead them to the emulator.
type leading struct {
	Cloud string
	// Secret has the token under Key.
	Secret, Key string
	// Snapshots: the cloud has them.
	Snapshots bool
	// MaxVolumes is what the machines take, where they cannot see it themselves.
	MaxVolumes int
	// Newest: see layout.
	Newest bool
}

func emulated(cloud string) bool {
	_, known := emulatedClouds[cloud]
	return known
}

// The emulator listens on the host's address in the cluster's network: nothing outside reaches it. The
// manifests name the second port, and the tests the first.
const (
	emulatorPort    = 28080 // the API, and the owner's side of the account
	emulatorTLSPort = 28443 // the API, for pods
	metadataPort    = 28100 // and the node's number: its machine's metadata service
)

// emulatorName is the folder of the emulator's data and its program.
const emulatorName = "emulator"

// linksFolder is where a node finds the links to the disks that are attached to it.
const linksFolder = "var/lib/cloudblock-csi/by-id"

// process is one outside of the machines.
type process struct {
	ID      int    `json:"id"`
	Started string `json:"started"` // since process ids are used again
}

func (p process) alive() bool {
	started, err := startTime(p.ID)
	return err == nil && started == p.Started
}

func hostPort(port int) string { return hostAddress + ":" + strconv.Itoa(port) }

func emulatorBuild(l layout) build {
	return build{
		what: "the emulator", module: ".", command: "build", packages: 120, cold: "up to a minute", outputs: []string{emulatorName},
		args: []string{"-v", "-trimpath", "-ldflags", "-s -w", "-o", l.cluster("bin") + "/", "./test/kit/emulator"},
	}
}

// startEmulator starts the emulated cloud on this machine, with a machine of it for each node.
func (c *cluster) startEmulator(ctx context.Context) error {
	var links, metadata []string
	for _, n := range c.nodes {
		folder := c.run(n.Name, linksFolder)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		address := hostPort(metadataPort + n.number)
		if err := n.script(ctx, metadataScript, address); err != nil {
			return err
		}
		links, metadata = append(links, folder), append(metadata, address)
	}
	if err := os.MkdirAll(c.run(emulatorName), 0o755); err != nil {
		return err
	}
	cmd := exec.Command(c.bin(emulatorName), "--cloud", c.cloud,
		"--listen", hostPort(emulatorPort), "--tls-listen", hostPort(emulatorTLSPort), "--ca-file", c.run(emulatorName, "ca.pem"),
		"--data-dir", c.run(emulatorName, "data"), "--machines", strconv.Itoa(len(links)),
		"--device-dirs", strings.Join(links, ","), "--metadata-listen", strings.Join(metadata, ","),
		// As long as they take there.
		"--action", "1s+1s")
	cmd.Dir = c.run(emulatorName)
	if description := os.Getenv("OPENAPI_DIR"); description != "" {
		if !filepath.IsAbs(description) {
			description = c.source(description)
		}
		cmd.Env = append(cmd.Env, "OPENAPI_DIR="+description)
	}
	d, err := launch(c.layout, "host", emulatorName, cmd)
	if err != nil {
		return err
	}
	started, err := startTime(d.pid)
	if err == nil {
		c.state.Emulator = &process{ID: d.pid, Started: started}
		err = c.state.save(c.layout)
	}
	if err != nil {
		return errors.Join(err, syscall.Kill(d.pid, syscall.SIGKILL))
	}
	return d.ready(ctx, 30*time.Second, emulatorAnswers)
}

// emulatorAnswers: it says on its owner's side how the account is.
func emulatorAnswers(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+hostPort(emulatorPort)+"/_emulator/stats", http.NoBody)
	if err != nil {
		return err
	}
	// No proxy of this machine knows the address.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("the emulator answers %s", answer.Status)
	}
	return errors.Join(err, answer.Body.Close())
}

// endEmulator ends it and waits until it has freed its devices. What users of a device have left is no
// reason to stay: whatever is still attached is freed before and after.
func endEmulator(ctx context.Context, p *process) error {
	if p == nil || !p.alive() {
		return nil
	}
	if err := syscall.Kill(p.ID, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	ended := func(context.Context) error {
		if p.alive() {
			return fmt.Errorf("process %d is still running", p.ID)
		}
		return nil
	}
	if waitFor(ctx, "end the emulator", 20*time.Second, ended) == nil {
		return nil
	}
	if err := syscall.Kill(p.ID, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return waitFor(ctx, "end the emulator", 5*time.Second, ended)
}

// emulatedDisks are the files of all emulated volumes.
func emulatedDisks(l layout) ([]string, error) {
	return filepath.Glob(l.run(emulatorName, "data", "account-*", "volumes", "*", "*"))
}

// writeEmulated adds what leads the overlay to the emulator to a copy of deploy/.
func writeEmulated(l layout, cloud string) (string, error) {
	dir := l.run("driver")
	if err := copyDeploy(l, dir); err != nil {
		return "", err
	}
	authority, err := os.ReadFile(l.run(emulatorName, "ca.pem"))
	if err != nil {
		return "", err
	}
	values := emulatedClouds[cloud]
	values.Newest = l.newest()
	return dir, errors.Join(
		renderTo(filepath.Join(dir, "kustomization.yaml"), "emulated.yaml.tmpl", values),
		os.WriteFile(filepath.Join(dir, "ca.pem"), authority, 0o644))
}
