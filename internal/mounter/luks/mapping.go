package luks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// Mapping is the open device of an encryption mapping. Close closes the descriptor, not the mapping.
type Mapping struct {
	host.Crypt
	below mounter.BlockDevice
	sysfs host.Sysfs
	file  *os.File
}

var _ mounter.BlockDevice = (*Mapping)(nil)

// OpenOptions are the options of Open.
type OpenOptions struct {
	// Discard passes discards on to the disk, which reveals there which blocks are unused.
	Discard  bool
	ReadOnly bool
}

// noTokens keeps cryptsetup from loading a plugin for the header's tokens. header.cost refuses those of its own kinds.
const noTokens = "--disable-external-tokens"

// Open makes the mapping of a volume on its disk. cryptsetup is killed when ctx ends. A header that exceeds the limits is
// fault.LUKSHeader, a wrong passphrase is fault.InvalidArgument.
func (c Cryptsetup) Open(ctx context.Context, below mounter.BlockDevice, volume string, key Key, o OpenOptions) (*Mapping, error) {
	h, err := c.header(ctx, below.File())
	var asks cost
	if err == nil {
		asks, err = h.cost()
	}
	if err != nil {
		return nil, fmt.Errorf("open the encrypted device: %w", err)
	}
	args := []string{"open", "--type", "luks2", noTokens, "--key-file", "-"}
	if !asks.own() {
		// One at a time with other programs of the machine too. Own headers go without this lock, so they never wait for it.
		args = append(args, "--serialize-memory-hard-pbkdf")
	}
	if o.Discard {
		args = append(args, "--allow-discards")
	}
	if o.ReadOnly {
		args = append(args, "--readonly")
	}
	name := Name(volume)
	args = append(args, disk, name)
	open := func() error { return c.open(ctx, below.File(), key, name, args) }
	err = c.derive(ctx, c.place(asks), open)
	if errors.Is(err, fault.Busy) && c.removeEmpty(ctx, name) {
		err = c.derive(ctx, c.place(asks), open)
	}
	if errors.Is(err, fault.InvalidArgument) {
		return nil, fmt.Errorf("open the encrypted device: no key of it has the passphrase in the secret: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("open the encrypted device: %w", err)
	}
	opened, err := c.named(name)
	if err == nil {
		var m *Mapping
		if m, err = c.Over(below, opened.Number); err == nil {
			return m, nil
		}
	}
	if closeErr := c.Close(context.WithoutCancel(ctx), name); closeErr != nil {
		return nil, fmt.Errorf("%w: %w (%w)", fault.Unavailable, err, closeErr)
	}
	return nil, err
}

// open runs a cryptsetup that opens. It changes nothing on the disk, so it is killed when the call has ended, and what it made is
// removed.
func (c Cryptsetup) open(ctx context.Context, on *os.File, key Key, name string, args []string) error {
	limited, cancel := context.WithTimeout(ctx, maxOpen)
	defer cancel()
	_, err := c.killable(limited, host.Command{Args: args, Stdin: strings.NewReader(key.Reveal()), Files: []*os.File{on}})
	if err == nil || limited.Err() == nil {
		return err
	}
	c.removeEmpty(ctx, name)
	if closeErr := c.Close(context.WithoutCancel(ctx), name); closeErr != nil {
		return fmt.Errorf("%w: %w (%w)", fault.Unavailable, err, closeErr)
	}
	return err
}

// removeEmpty removes a mapping without a table and reports whether there was one: a killed cryptsetup leaves it, and it occupies
// the name. The kernel lists a mapping in sysfs once it has a table; removeEmpty does not touch a listed one.
func (c Cryptsetup) removeEmpty(ctx context.Context, name string) bool {
	if there, err := c.there(name); err != nil || there {
		return false
	}
	out, err := c.dmsetupRemove(ctx, name)
	return err == nil && out.ExitCode == 0
}

func (c Cryptsetup) dmsetupRemove(ctx context.Context, name string) (host.Output, error) {
	return c.programs.Run(context.WithoutCancel(ctx), host.Command{Name: "dmsetup", Args: []string{"remove", name}})
}

// there reports whether device-mapper has a mapping with this name.
func (c Cryptsetup) there(name string) (bool, error) {
	_, err := c.named(name)
	if errors.Is(err, errNoMapping) {
		return false, nil
	}
	return err == nil, err
}

var errNoMapping = errors.New("device-mapper has no such mapping")

// named returns the mapping with this name.
func (c Cryptsetup) named(name string) (host.Crypt, error) {
	all, err := c.sysfs.Crypts()
	if err != nil {
		return host.Crypt{}, err
	}
	i := slices.IndexFunc(all, func(m host.Crypt) bool { return m.Name == name })
	if i < 0 {
		return host.Crypt{}, fmt.Errorf("mapping %s: %w: %w", name, fault.Unavailable, errNoMapping)
	}
	return all[i], nil
}

// Over opens the device of an existing mapping if its disk is this one.
func (c Cryptsetup) Over(below mounter.BlockDevice, number uint64) (*Mapping, error) {
	all, err := c.sysfs.Crypts()
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all, func(m host.Crypt) bool { return m.Number == number })
	if i < 0 {
		return nil, fmt.Errorf("block device %d:%d is no mapping of dm-crypt: %w", unix.Major(number), unix.Minor(number), fault.DeviceIdentity)
	}
	m := &Mapping{Crypt: all[i], below: below, sysfs: c.sysfs}
	if err := m.stands(); err != nil {
		return nil, err
	}
	if m.file, err = os.OpenFile("/dev/"+m.Kernel, os.O_RDONLY, 0); err != nil {
		return nil, fmt.Errorf("open mapping %s: %w: %w", m.Name, fault.Unavailable, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(m.file.Fd()), &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFBLK || st.Rdev != number {
		return nil, errors.Join(fmt.Errorf("%s is not the device of mapping %s: %w", m.file.Name(), m.Name, fault.Unavailable), err, m.Close())
	}
	return m, nil
}

// stands proves that the disk, and no other, is below the listed mapping.
func (m *Mapping) stands() error {
	if !slices.Equal(m.Below, []uint64{m.below.Number()}) {
		return fmt.Errorf("mapping %s does not stand on %s, or its disk has gone: %w", m.Name, m.below.Path(), fault.DeviceIdentity)
	}
	return nil
}

// File returns the open descriptor; it stays owned by the Mapping.
func (m *Mapping) File() *os.File { return m.file }

// Path returns the kernel's name of the device, such as /dev/dm-0.
func (m *Mapping) Path() string { return m.file.Name() }

// Number returns the device number.
func (m *Mapping) Number() uint64 { return m.Crypt.Number }

// Size returns the current size in bytes.
func (m *Mapping) Size() (int64, error) {
	size, err := m.file.Seek(0, 2)
	if err != nil {
		return 0, fmt.Errorf("read size of %s: %w: %w", m.Path(), fault.Unavailable, err)
	}
	return size, nil
}

// Verify proves that the disk is still the volume's and below the mapping.
func (m *Mapping) Verify(ctx context.Context) error {
	disk, err := m.sysfs.DiskOf(m.Number())
	if err != nil {
		return err
	}
	if disk != m.below.Number() {
		return fmt.Errorf("mapping %s no longer stands on %s: %w", m.Name, m.below.Path(), fault.DeviceIdentity)
	}
	return m.below.Verify(ctx)
}

// Close closes the descriptor.
func (m *Mapping) Close() error { return m.file.Close() }

// Close closes a mapping; fault.Busy while it is in use. Without the mapping it does nothing.
func (c Cryptsetup) Close(ctx context.Context, name string) error {
	out, err := c.output(ctx, host.Command{Args: []string{"close", name}})
	if err == nil {
		return nil
	}
	if out.ExitCode != exitNoDevice {
		return fmt.Errorf("close mapping %s: %w", name, err)
	}
	// cryptsetup has one code for a missing mapping, for one that was interrupted before its table was live, and for a
	// device-mapper that cannot be reached.
	if there, err := c.there(name); err != nil || !there {
		return err
	}
	if out, err = c.dmsetupRemove(ctx, name); err != nil {
		return fmt.Errorf("remove mapping %s: %w", name, err)
	}
	if there, err := c.there(name); err != nil || !there {
		return err
	}
	return fmt.Errorf("mapping %s stays, dmsetup remove ended with code %d: %w: %s", name, out.ExitCode, fault.Unavailable, out.Tail())
}

// sector is by how much a mapping may be shorter than its disk: sizes are in sectors of up to 4 KiB.
const sector = 4 << 10

// Grow makes the mapping as large as its disk. If it is smaller, a missing key is fault.LUKSKey.
func (c Cryptsetup) Grow(ctx context.Context, m *Mapping, key Key) error {
	h, err := c.header(ctx, m.below.File())
	if err != nil {
		return err
	}
	full, err := h.full(m)
	if err != nil || full {
		return err
	}
	asks, err := h.cost()
	if err != nil {
		return fmt.Errorf("grow mapping %s: %w", m.Name, err)
	}
	if key.Reveal() == "" {
		return fmt.Errorf("the disk of the encrypted volume has grown, and growing its mapping needs the passphrase: "+
			"set csi.storage.k8s.io/node-expand-secret-name and -namespace in the class, or restart the pod: %w", fault.LUKSKey)
	}
	switch err := c.derive(ctx, c.place(asks), func() error {
		return c.run(ctx, nil, key.Reveal(), "resize", noTokens, "--key-file", "-", m.Name)
	}); {
	case errors.Is(err, fault.InvalidArgument):
		// The secret can be corrected, but an InvalidArgument of a growth is final for kubelet.
		return fmt.Errorf("grow mapping %s: %w: no key of it has the passphrase in the secret: %w", m.Name, fault.LUKSKey, err)
	case err != nil:
		return fmt.Errorf("grow mapping %s: %w", m.Name, err)
	}
	if full, err = h.full(m); err == nil && !full {
		err = fmt.Errorf("mapping %s is still smaller than its disk after it was grown: %w", m.Name, fault.Unavailable)
	}
	return err
}

// full reports whether the mapping reaches the end of its disk.
func (h header) full(m *Mapping) (bool, error) {
	if len(h.Segments) != 1 {
		return false, fmt.Errorf("the LUKS2 header of %s has %d segments, as during a re-encryption; let that end first: %w",
			m.below.Path(), len(h.Segments), fault.Precondition)
	}
	disk, err := m.below.Size()
	if err != nil {
		return false, err
	}
	size, err := m.Size()
	if err != nil {
		return false, err
	}
	for _, s := range h.Segments {
		if s.Size == "dynamic" {
			return disk-s.Offset-size < sector, nil
		}
	}
	return true, nil // of a size that the header fixes
}
