package luks

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// Limits of a header. A pod can write a header and have a copy of its volume opened, and the header determines the cost: cryptsetup
// could derive for years or use more memory than the node program has.
//
// Work is in KiB that argon2 fills: two cores fill about 2 GiB in a second; PBKDF2 does about 700,000 iterations in that time.
// Format's header has about 3 GiB of work, cryptsetup's default less than 16 GiB.
const (
	maxMemory     = 1 << 20 // KiB: cryptsetup's default, which other drivers' headers have
	maxThreads    = 4       // cryptsetup's own maximum
	maxIterations = 10_000_000
	maxWork       = 32 << 20 // KiB
	maxSlots      = 8
	maxArea       = 1 << 20 // bytes: an area of Format's header has a quarter of this
	maxKey        = 64      // bytes: the two keys of aes-xts with 256 bits each
	stripes       = 4000    // the only value of the format

	workOfIteration = maxWork / maxIterations

	// A header within ownMemory and ownWork uses the slot of the driver's own headers, even if the driver did not make it, because a
	// mark of the maker can be forged.
	ownMemory = 64 << 10
	ownWork   = 16 << 20
)

// cipher is the prefix of the ciphers that a header may have: cipher_null would encrypt nothing.
const cipher = "aes-"

// hashes are those that a header may have. Others may be slow or make the kernel load a module.
var hashes = []string{"sha1", "sha256", "sha512"}

// kdf is how a key is derived: by argon2, with a time, a memory in KiB and threads, or by PBKDF2, with iterations.
type kdf struct {
	Type       string `json:"type"`
	Time       int64  `json:"time"`
	Memory     int64  `json:"memory"`
	CPUs       int64  `json:"cpus"`
	Iterations int64  `json:"iterations"`
	Hash       string `json:"hash"`
}

// keyslot is a key slot of a header.
type keyslot struct {
	Type    string `json:"type"`
	KeySize int64  `json:"key_size"`
	AF      struct {
		Type    string `json:"type"`
		Stripes int64  `json:"stripes"`
		Hash    string `json:"hash"`
	} `json:"af"`
	Area struct {
		Type       string `json:"type"`
		Size       int64  `json:"size,string"`
		Encryption string `json:"encryption"`
		KeySize    int64  `json:"key_size"`
	} `json:"area"`
	KDF kdf `json:"kdf"`
}

// cost is the cost of a wrong passphrase, with which cryptsetup tries all key slots.
type cost struct{ memory, work int64 }

// own reports whether the cost is within that of the driver's own headers.
func (c cost) own() bool { return c.memory <= ownMemory && c.work <= ownWork }

// cost checks a header before a passphrase is tried and returns its cost. It refuses what it does not know with
// fault.LUKSHeader.
func (h header) cost() (cost, error) {
	all, err := h.sum()
	if err == nil && all.work > maxWork {
		err = fmt.Errorf("its key slots together fill %d MiB of memory, more than %d", all.work>>10, maxWork>>10)
	}
	if err != nil {
		return cost{}, fmt.Errorf("its LUKS2 header is not opened: %w: %w", fault.LUKSHeader, err)
	}
	return all, nil
}

func (h header) sum() (all cost, err error) {
	if err := h.checkOpening(); err != nil {
		return cost{}, err
	}
	for id, slot := range h.Keyslots {
		if err := slot.check(); err != nil {
			return cost{}, fmt.Errorf("key slot %s: %w", id, err)
		}
		one, err := slot.KDF.cost()
		if err != nil {
			return cost{}, fmt.Errorf("key slot %s: %w", id, err)
		}
		all.memory, all.work = max(all.memory, one.memory), all.work+one.work
	}
	for id, digest := range h.Digests {
		one, err := digest.cost()
		if err != nil {
			return cost{}, fmt.Errorf("digest %s: %w", id, err)
		}
		// What each slot yields is compared with it.
		all.memory, all.work = max(all.memory, one.memory), all.work+one.work*int64(len(h.Keyslots))
	}
	return all, nil
}

// checkOpening refuses a header that would open without the passphrase or change the disk.
func (h header) checkOpening() error {
	for id, t := range h.Tokens {
		if len(t.Keyslots) > 0 {
			return fmt.Errorf("token %s has a key slot, so that something else than the secret opens it", id)
		}
	}
	switch {
	case len(h.Keyslots) == 0: // luksFormat writes the header, derives the key for a second or two, and writes the slot
		return errors.New("it has no key slot, as after a first format that was cut off: if no pod has ever used the volume, delete its claim")
	case len(h.Keyslots) > maxSlots || len(h.Digests) > maxSlots:
		return fmt.Errorf("it has %d key slots and %d digests, more than %d", len(h.Keyslots), len(h.Digests), maxSlots)
	case len(h.Config.Requirements) > 0:
		return errors.New("it has requirements, as during a re-encryption")
	case len(h.Segments) != 1:
		return fmt.Errorf("it has %d segments, as during a re-encryption", len(h.Segments))
	}
	for _, s := range h.Segments {
		if s.Type != "crypt" || !strings.HasPrefix(s.Encryption, cipher) {
			return errors.New("its data is not encrypted with AES")
		}
		if len(s.Integrity) > 0 { // cryptsetup would put a device of dm-integrity, with a journal, between the mapping and the disk
			return errors.New("its data has checksums of dm-integrity")
		}
	}
	return nil
}

// check checks all but the derivation.
func (s keyslot) check() error {
	switch {
	case s.Type != "luks2" || s.Area.Type != "raw" || s.AF.Type != "luks1":
		return errors.New("its type is not known")
	case s.AF.Stripes != stripes || !slices.Contains(hashes, s.AF.Hash):
		return errors.New("its anti-forensic stripes are not known")
	case !strings.HasPrefix(s.Area.Encryption, cipher):
		return errors.New("its key is not encrypted with AES")
	case !within(s.KeySize, maxKey) || !within(s.Area.KeySize, maxKey) || !within(s.Area.Size, maxArea):
		return fmt.Errorf("its key has %d and %d bytes in an area of %d, more than %d in %d", s.KeySize, s.Area.KeySize, s.Area.Size, maxKey, maxArea)
	}
	return nil
}

func (k kdf) cost() (cost, error) {
	switch {
	case k.Type == "pbkdf2" && slices.Contains(hashes, k.Hash):
		if !within(k.Iterations, maxIterations) {
			return cost{}, fmt.Errorf("%d iterations of PBKDF2, more than %d", k.Iterations, maxIterations)
		}
		return cost{work: k.Iterations * workOfIteration}, nil
	case k.Type == "argon2i" || k.Type == "argon2id":
		if !within(k.Memory, maxMemory) || !within(k.CPUs, maxThreads) {
			return cost{}, fmt.Errorf("%d KiB of memory and %d threads, more than %d and %d", k.Memory, k.CPUs, maxMemory, maxThreads)
		}
		// Passes over less memory count as ours: they cost the start of their threads.
		filled := max(k.Memory, ownMemory)
		if !within(k.Time, maxWork/filled) {
			return cost{}, fmt.Errorf("%d passes over %d KiB of memory, more than %d", k.Time, k.Memory, maxWork/filled)
		}
		return cost{k.Memory, k.Time * filled}, nil
	}
	return cost{}, errors.New("its derivation is not known")
}

func within(n, most int64) bool { return n > 0 && n <= most }

// plainName is a name as LUKS2 has them. encoding/json takes one in capitals for the same, and the last of both counts;
// cryptsetup reads the other.
var plainName = regexp.MustCompile(`^[a-z0-9_.-]*$`)

// checkNames refuses a header that encoding/json could read otherwise than cryptsetup does.
func checkNames(text []byte) error {
	var all any
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	return checkNamesIn(all)
}

func checkNamesIn(value any) error {
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			if !plainName.MatchString(name) {
				return fmt.Errorf("the name %q", name)
			}
			if err := checkNamesIn(inner); err != nil {
				return err
			}
		}
	case []any:
		for _, inner := range v {
			if err := checkNamesIn(inner); err != nil {
				return err
			}
		}
	}
	return nil
}
