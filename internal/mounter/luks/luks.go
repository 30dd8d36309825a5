// Package luks makes, opens, grows and closes encrypted devices with cryptsetup.
//
// It decides nothing about what is on a disk: the gate of package format says whether a header may be made. The passphrase
// goes to cryptsetup by its standard input, whole and as it is, and nowhere else.
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
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/format"
)

// Key is a passphrase that no log shows.
type Key interface{ Reveal() string }

// Cryptsetup runs the program of that name. It keeps no state about volumes.
type Cryptsetup struct {
	programs host.Runner
	sysfs    host.Sysfs
	// own and costly have a place each for one program that derives a key: a costly header may ask for up to 1 GiB of memory,
	// and the node program has a limit. One that costs no more than the driver's own does not wait behind it.
	own, costly chan struct{}
}

// maxWait is how long a volume waits for its turn to derive a key, as long as the kubelet waits for a call. A cryptsetup
// whose disk hangs never ends, and the volumes that wait behind it must not keep their locks, or they could not be unstaged.
const maxWait = 2 * time.Minute

// maxOpen is how long a cryptsetup derives the key of a volume that it opens: several times what a header may cost.
const maxOpen = 2 * time.Minute

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

// Check reports whether this machine has what opens encrypted devices. fault.ProgramMissing says what is missing.
func (c Cryptsetup) Check() error {
	if _, err := exec.LookPath("cryptsetup"); err != nil {
		return fmt.Errorf("the volume is encrypted with LUKS, and cryptsetup is not installed: %w: %w", fault.ProgramMissing, err)
	}
	if err := c.sysfs.CheckDeviceMapper(); err != nil {
		return fmt.Errorf("the volume is encrypted with LUKS: %w", err)
	}
	return nil
}

// Name is device-mapper's name of the mapping of a volume. Ids have characters that such names have not.
func Name(volume string) string {
	sum := sha256.Sum256([]byte(volume))
	return "cloudblock-" + hex.EncodeToString(sum[:16])
}

// token is our token in a header. While it is there, no filesystem was ever completed behind it.
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
// encryption. The derivation of the key needs 64 MiB of memory, not up to 1 GiB as by cryptsetup's default: the node
// program has a limit. The passphrase is meant to be random, so its strength does not rest on the derivation.
func (c Cryptsetup) Format(ctx context.Context, on *os.File, volume string, key Key) error {
	err := derive(ctx, c.own, func() error {
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

// Unformatted reports whether the header says that no filesystem was completed behind it for this volume. The token of
// another volume, as in the copy of one that was being formatted, says nothing.
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

// header is what is needed of a LUKS2 header, by the names of its on-disk format.
type header struct {
	Keyslots map[string]keyslot `json:"keyslots"`
	Digests  map[string]kdf     `json:"digests"`
	Tokens   map[string]token   `json:"tokens"`
	Segments map[string]struct {
		Type       string `json:"type"`
		Offset     int64  `json:"offset,string"`
		Size       string `json:"size"`
		Encryption string `json:"encryption"`
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

// derive runs what derives a key from a passphrase: one at a time for each place.
func derive(ctx context.Context, place chan struct{}, run func() error) error {
	waiting, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	select {
	case place <- struct{}{}:
	case <-waiting.Done():
		return fmt.Errorf("wait for the key of another volume: %w: %w", fault.Unavailable, waiting.Err())
	}
	defer func() { <-place }()
	return run()
}

// place is where a header waits for its turn.
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

// output runs cryptsetup, which like mkfs is not broken off when the call's context ends.
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
