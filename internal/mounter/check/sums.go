package check

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// maxLine is the longest line of a list that is read: a path with each character escaped fits.
const maxLine = 16 << 10

// sum is a line of a list of checksums.
type sum struct {
	name string
	hash [sha256.Size]byte
}

// parseSum parses a line as sha256sum writes it: the checksum, a blank, a blank or an asterisk, and the name. In a line that begins with
// a backslash, the name is escaped. A name outside of the volume is refused.
func parseSum(line string) (sum, error) {
	rest, escaped := strings.CutPrefix(line, `\`)
	const digits = 2 * sha256.Size
	if len(rest) < digits+3 || rest[digits] != ' ' || rest[digits+1] != ' ' && rest[digits+1] != '*' {
		return sum{}, errors.New("it is not of the form that sha256sum writes")
	}
	var s sum
	if _, err := hex.Decode(s.hash[:], []byte(rest[:digits])); err != nil {
		return sum{}, errors.New("it has no checksum")
	}
	s.name = rest[digits+2:]
	if escaped {
		// Other escapes than these do not occur.
		s.name = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r").Replace(s.name)
	}
	if strings.ContainsRune(s.name, 0) {
		return sum{}, errors.New("its name has a byte 0")
	}
	if !filepath.IsLocal(s.name) {
		return sum{}, fmt.Errorf("its name leaves the volume: %q", s.name)
	}
	return s, nil
}

// compare reads the files on the list of checksums.
func (r *reader) compare() error {
	list, err := r.openList()
	if list == nil || err != nil {
		return err
	}
	defer func() { _ = list.Close() }()
	r.report.Checksums = cmp.Or(r.Checksums, DefaultChecksums)
	lines := bufio.NewScanner(list)
	lines.Buffer(make([]byte, 0, maxLine), maxLine)
	number := 0
	for lines.Scan() {
		number++
		s, err := parseSum(lines.Text())
		if err != nil {
			r.report.finding("line %d of %s: %s", number, r.report.Checksums, err)
			continue
		}
		if err := r.skip(s.name, r.compareFile(s)); err != nil {
			return err
		}
	}
	switch err := lines.Err(); {
	case err != nil:
		r.report.finding("read %s after line %d: %s", r.report.Checksums, number, cause(err))
	case number == 0:
		r.report.finding("%s is empty", r.report.Checksums)
	}
	return nil
}

// openList opens the list; nil: there is none.
func (r *reader) openList() (*os.File, error) {
	if filepath.IsAbs(r.Checksums) {
		f, err := os.Open(r.Checksums)
		if err != nil {
			return nil, fmt.Errorf("open the list of checksums: %w: %w", fault.Unavailable, err)
		}
		return f, nil
	}
	name := cmp.Or(r.Checksums, DefaultChecksums)
	if r.Checksums == "" {
		if _, err := r.root.Lstat(name); errors.Is(err, os.ErrNotExist) {
			return nil, nil //nolint:nilnil // there is none
		}
	}
	f, _, err := r.open(name, true)
	return f, r.skip(name, err)
}

// compareFile compares a file with its checksum.
func (r *reader) compareFile(s sum) error {
	f, _, err := r.open(s.name, true)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := r.copy(h, io.Reader(f)); err != nil {
		return err
	}
	r.report.Compared++
	if [sha256.Size]byte(h.Sum(nil)) != s.hash {
		return errors.New("its content is not the one of the list of checksums")
	}
	return nil
}
