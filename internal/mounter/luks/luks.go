// Package luks makes, opens, grows and closes encrypted devices with cryptsetup.
//
// It does not decide whether a header may be made; the gate of package format does. The passphrase goes unchanged to the standard
// input of cryptsetup and nowhere else.
package luks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
)

// Key is a passphrase that logs do not show.
type Key interface{ Reveal() string }

// Cryptsetup runs cryptsetup. It keeps no state about volumes.
type Cryptsetup struct {
	programs host.Runner
	sysfs    host.Sysfs
	// own and costly each admit one cryptsetup that derives a key: a costly header may take up to 1 GiB of the node program's
	// memory limit, and the driver's own headers do not wait for it.
	own, costly chan struct{}
}

// maxWait is how long a volume waits to derive its key, which is kubelet's timeout of a call. A cryptsetup whose disk hangs never
// ends, and the waiting volumes must release their locks, or they could not be unstaged.
const maxWait = 2 * time.Minute

// maxOpen is the time limit for opening a volume: several times the maximum cost of a header.
const maxOpen = 2 * time.Minute

// maxHold is how long a cryptsetup may occupy the slot of the driver's own headers. One that needs longer has derived its key, and waits
// for a disk that hangs: the other volumes do not wait for that disk.
const maxHold = 3 * time.Minute

// New returns a Cryptsetup that runs programs by a Runner.
func New(programs host.Runner, sysfs host.Sysfs) Cryptsetup {
	return Cryptsetup{programs, sysfs, make(chan struct{}, 1), make(chan struct{}, 1)}
}

// The exit codes of cryptsetup(8) that say more than that it failed.
const (
	exitNoKey    = 2
	exitNoDevice = 4
	exitBusy     = 5
)

// disk is the path by which cryptsetup reaches the first of its Command.Files.
const disk = "/proc/self/fd/3"

// Check returns fault.ProgramMissing if this machine cannot open encrypted devices.
func (c Cryptsetup) Check() error {
	if _, err := exec.LookPath("cryptsetup"); err != nil {
		return fmt.Errorf("the volume is encrypted with LUKS, and cryptsetup is not installed: %w: %w", fault.ProgramMissing, err)
	}
	if err := c.sysfs.CheckDeviceMapper(); err != nil {
		return fmt.Errorf("the volume is encrypted with LUKS: %w", err)
	}
	return nil
}

// Name returns device-mapper's name for the mapping of a volume. It is a hash, because ids have characters that device-mapper does
// not allow.
func Name(volume string) string {
	sum := sha256.Sum256([]byte(volume))
	return "cloudblock-" + hex.EncodeToString(sum[:16])
}

// token is this driver's token in a header. While it is there, no filesystem was completed in the mapping.
type token struct {
	Type     string   `json:"type"`
	Keyslots []string `json:"keyslots"`
	Volume   string   `json:"volume"`
}

const (
	tokenType = "cloudblock-unformatted"
	tokenID   = "0"
)

// Format makes a header with one passphrase and the token that the volume is unformatted. Everything on the disk
// is lost.
//
// The sectors have 512 bytes, as the disk's own, so that a raw block volume and a later growth work as without
// encryption. The derivation of the key takes 64 MiB of memory, because the node program has a limit; cryptsetup's default is up to
// 1 GiB. Passphrases should be random, so that their strength does not depend on the derivation.
func (c Cryptsetup) Format(ctx context.Context, on *os.File, volume string, key Key) error {
	err := c.derive(ctx, c.own, func() error {
		return c.run(ctx, on, key.Reveal(), "luksFormat", "--batch-mode", "--type", "luks2",
			"--cipher", "aes-xts-plain64", "--key-size", "512", "--sector-size", "512",
			"--pbkdf", "argon2id", "--pbkdf-memory", "65536", "--iter-time", "1000",
			"--subsystem", format.LUKSSubsystem, "--key-file", "-", disk)
	})
	if err != nil {
		return err
	}
	text, err := json.Marshal(token{Type: tokenType, Keyslots: []string{}, Volume: volume})
	if err != nil {
		return err
	}
	return c.run(ctx, on, string(text), "token", "import", "--token-id", tokenID, "--json-file", "-", disk)
}

// Unformatted reports whether the header has the token of this volume: no filesystem was completed. The token of another volume, as
// in a copy of one that was being formatted, does not count.
func (c Cryptsetup) Unformatted(ctx context.Context, on *os.File, volume string) (bool, error) {
	h, err := c.header(ctx, on)
	if err != nil {
		return false, err
	}
	t, ok := h.Tokens[tokenID]
	return ok && t.Type == tokenType && t.Volume == volume, nil
}

// SetFormatted removes the token of Format.
func (c Cryptsetup) SetFormatted(ctx context.Context, on *os.File) error {
	return c.run(ctx, on, "", "token", "remove", "--token-id", tokenID, disk)
}

// header has the needed fields of a LUKS2 header, with the names of the on-disk format.
type header struct {
	Keyslots map[string]keyslot `json:"keyslots"`
	Digests  map[string]kdf     `json:"digests"`
	Tokens   map[string]token   `json:"tokens"`
	Segments map[string]struct {
		Type       string          `json:"type"`
		Offset     int64           `json:"offset,string"`
		Size       string          `json:"size"`
		Encryption string          `json:"encryption"`
		Integrity  json.RawMessage `json:"integrity"`
	} `json:"segments"`
	Config struct {
		Requirements json.RawMessage `json:"requirements"`
	} `json:"config"`
}

func (c Cryptsetup) header(ctx context.Context, on *os.File) (header, error) {
	out, err := c.output(ctx, host.Command{Args: []string{"luksDump", "--dump-json-metadata", disk}, Files: []*os.File{on}})
	if err != nil {
		return header{}, err
	}
	var h header
	if err = checkNames(out.Stdout); err == nil {
		err = json.Unmarshal(out.Stdout, &h)
	}
	if err != nil {
		return header{}, fmt.Errorf("read the LUKS2 header of %s: %w: %w", on.Name(), fault.LUKSHeader, err)
	}
	return h, nil
}

// derive runs a cryptsetup that derives a key, one at a time for each slot.
func (c Cryptsetup) derive(ctx context.Context, place chan struct{}, run func() error) error {
	waiting, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	select {
	case place <- struct{}{}:
	case <-waiting.Done():
		return fmt.Errorf("wait for the key of another volume: %w: %w", fault.Unavailable, waiting.Err())
	}
	release := sync.OnceFunc(func() { <-place })
	defer release()
	if place == c.own {
		defer time.AfterFunc(maxHold, release).Stop()
	}
	return run()
}

// place returns the slot for which a header waits.
func (c Cryptsetup) place(h cost) chan struct{} {
	if h.own() {
		return c.own
	}
	return c.costly
}

// run runs cryptsetup with the disk as the first file.
func (c Cryptsetup) run(ctx context.Context, on *os.File, stdin string, args ...string) error {
	cmd := host.Command{Args: args, Stdin: strings.NewReader(stdin)}
	if on != nil {
		cmd.Files = []*os.File{on}
	}
	_, err := c.output(ctx, cmd)
	return err
}

// output runs cryptsetup, which like mkfs is not killed when the call's context ends.
func (c Cryptsetup) output(ctx context.Context, cmd host.Command) (host.Output, error) {
	if err := ctx.Err(); err != nil {
		return host.Output{}, fmt.Errorf("%w: %w", fault.Unavailable, err)
	}
	return c.killable(context.WithoutCancel(ctx), cmd)
}

// killable runs cryptsetup, which is killed when ctx ends: it ignores SIGTERM while it derives.
func (c Cryptsetup) killable(ctx context.Context, cmd host.Command) (host.Output, error) {
	cmd.Name = "cryptsetup"
	out, err := c.programs.Run(ctx, cmd)
	if err != nil || out.ExitCode == 0 {
		return out, err
	}
	kind := error(fault.Precondition)
	switch out.ExitCode {
	case exitNoKey:
		kind = fault.LUKSKey.Explain(fault.InvalidArgument)
	case exitNoDevice:
		kind = fault.Unavailable
	case exitBusy:
		kind = fault.Busy
	}
	return out, fmt.Errorf("cryptsetup %s ended with code %d: %w: %s", cmd.Args[0], out.ExitCode, kind,
		strings.ReplaceAll(out.Tail(), disk, "the disk"))
}
