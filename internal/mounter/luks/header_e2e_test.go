//go:build e2e

package luks_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/host"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter/luks"
)

// object is a part of a header's JSON.
type object = map[string]any

// patch changes the JSON of both copies of a LUKS2 header, and makes their checksums right, as a pod can in its own disk. The
// places are those of the on-disk format.
func patch(t *testing.T, disk *os.File, change func(object)) {
	t.Helper()
	const binaryPart, sizeAt, checksumAt, checksumLength = 4096, 8, 448, 64
	first := make([]byte, binaryPart)
	if _, err := disk.ReadAt(first, 0); err != nil {
		t.Fatal(err)
	}
	size := int64(binary.BigEndian.Uint64(first[sizeAt:]))
	for _, at := range []int64{0, size} {
		b := make([]byte, size)
		if _, err := disk.ReadAt(b, at); err != nil {
			t.Fatal(err)
		}
		text, _, _ := bytes.Cut(b[binaryPart:], []byte{0})
		var parsed object
		must(t, json.Unmarshal(text, &parsed))
		change(parsed)
		text, err := json.Marshal(parsed)
		if err != nil || len(text) >= len(b)-binaryPart {
			t.Fatalf("a header of %d bytes, %v", len(text), err)
		}
		clear(b[binaryPart:])
		copy(b[binaryPart:], text)
		clear(b[checksumAt : checksumAt+checksumLength])
		sum := sha256.Sum256(b)
		copy(b[checksumAt:], sum[:])
		if _, err := disk.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
}

// part returns an object inside another.
func part(o object, path ...string) object {
	for _, name := range path {
		o = o[name].(object)
	}
	return o
}

// withoutMapper runs the real cryptsetup, which tests a passphrase where it would make a mapping: not every machine that runs
// these tests has device-mapper.
type withoutMapper struct{ secretive }

func (r withoutMapper) Run(ctx context.Context, c host.Command) (host.Output, error) {
	if c.Args[0] == "open" {
		c.Args = append(slices.Clone(c.Args[:len(c.Args)-1]), "--test-passphrase")
	}
	return r.secretive.Run(ctx, c)
}

// below is a file in the place of the disk of a volume.
type below struct{ file *os.File }

func (b below) File() *os.File               { return b.file }
func (b below) Path() string                 { return b.file.Name() }
func (b below) Number() uint64               { return 1 }
func (b below) Size() (int64, error)         { return b.file.Seek(0, 2) }
func (b below) Verify(context.Context) error { return nil }

// hostile are headers as a pod can write them.
var hostile = map[string]func(object){
	"3 GiB of memory":        func(o object) { part(o, "keyslots", "0", "kdf")["memory"] = 3 << 20 },
	"passes without end":     func(o object) { part(o, "keyslots", "0", "kdf")["time"] = uint32(1<<32 - 1) },
	"five threads":           func(o object) { part(o, "keyslots", "0", "kdf")["cpus"] = 5 },
	"small and without end":  func(o object) { k := part(o, "keyslots", "0", "kdf"); k["memory"], k["time"] = 32, 1<<20 },
	"iterations without end": func(o object) { part(o, "keyslots", "0")["kdf"] = pbkdf2(1<<32 - 1) },
	"a digest without end":   func(o object) { part(o, "digests", "0")["iterations"] = uint32(1<<32 - 1) },
	"a key without a cipher": func(o object) { part(o, "keyslots", "0", "area")["encryption"] = "cipher_null-ecb" },
	"data without a cipher":  func(o object) { part(o, "segments", "0")["encryption"] = "cipher_null-ecb" },
	"data with checksums": func(o object) {
		part(o, "segments", "0")["integrity"] = object{"type": "hmac(sha256)", "journal_encryption": "none", "journal_integrity": "none"}
	},
	"a token of the keyring": func(o object) {
		part(o, "tokens")["1"] = object{"type": "luks2-keyring", "keyslots": []string{"0"}, "key_description": "other:key"}
	},
	"our token with a slot":   func(o object) { part(o, "tokens", "0")["keyslots"] = []string{"0"} },
	"a name in other letters": func(o object) { o["Keyslots"] = object{} },
	"nine slots": func(o object) {
		for n := range 9 {
			slot := object{}
			for k, v := range part(o, "keyslots", "0") {
				slot[k] = v
			}
			slot["area"] = object{"type": "raw", "offset": fmt.Sprint(32768 + n*258048), "size": "258048", "encryption": "aes-xts-plain64", "key_size": 64}
			part(o, "keyslots")[fmt.Sprint(n)] = slot
		}
		slots := make([]string, 9)
		for n := range slots {
			slots[n] = fmt.Sprint(n)
		}
		part(o, "digests", "0")["keyslots"] = slots
	},
}

func pbkdf2(iterations uint32) object {
	return object{"type": "pbkdf2", "hash": "sha256", "iterations": iterations, "salt": "B45ps288ockM7b+LEQnxIwG5RT4WJRFTU8OpZr76VsU="}
}

// L10: what a header asks for is read before it is opened. One that asks for too much is refused in under a second, and
// meanwhile another volume is opened.
func TestHostileHeaders(t *testing.T) {
	c := luks.New(withoutMapper{secretive{t, "s3cret"}}, host.Sysfs(t.TempDir()))
	own := newDisk(t)
	must(t, c.Format(t.Context(), own, "v1", key("s3cret")))
	text, err := os.ReadFile(own.Name())
	must(t, err)
	var meanwhile sync.WaitGroup
	meanwhile.Go(func() {
		if _, err := c.Open(t.Context(), below{own}, "v1", key("another"), luks.OpenOptions{}); fault.ReasonOf(err) != fault.LUKSKey {
			t.Errorf("Open of another volume = %v, want %q: its key was tried", err, string(fault.LUKSKey))
		}
	})
	for what, change := range hostile {
		t.Run(what, func(t *testing.T) {
			name := filepath.Join(t.TempDir(), "disk")
			must(t, os.WriteFile(name, text, 0o600))
			disk, err := os.OpenFile(name, os.O_RDWR, 0)
			must(t, err)
			defer disk.Close()
			patch(t, disk, change)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			begin := time.Now()
			_, err = c.Open(ctx, below{disk}, "v2", key("s3cret"), luks.OpenOptions{})
			if took := time.Since(begin); fault.Of(err) != fault.Precondition || fault.ReasonOf(err) != fault.LUKSHeader || took > time.Second {
				t.Errorf("Open = %v after %v, want %q in under a second", err, took, string(fault.LUKSHeader))
			} else if strings.Contains(err.Error(), "luksDump ended") {
				t.Errorf("Open = %v: cryptsetup takes it for damaged, so it shows nothing", err)
			}
		})
	}
	meanwhile.Wait()
}
