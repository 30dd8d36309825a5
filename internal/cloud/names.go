package cloud

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// NameRule describes the names that a cloud allows. Map maps any request name to one of them.
//
// ASCII lower-case letters, digits and '-' are always allowed; no known cloud forbids them.
type NameRule struct {
	// MinLen and MaxLen bound the length in bytes. MaxLen is at least 4.
	MinLen, MaxLen int
	// Upper: upper-case letters are allowed, and differ from lower-case ones.
	Upper bool
	// Underscore: '_' is allowed.
	Underscore bool
	// StartLetter: the first character is a letter.
	StartLetter bool
	// EndAlnum: the last character is a letter or a digit.
	EndAlnum bool
	// NoDoubles: "--" and "__" are not allowed.
	NoDoubles bool
}

// nameHashLen is the number of base32 characters of the hash in a changed name: 80 bits.
const nameHashLen = 16

// hashMark precedes the hash in a changed name. 'h' is not a hexadecimal digit, so the usual names, which end in a part of a UUID,
// never look like changed ones.
const hashMark = "-h"

// hashDigits are the digits of base32 with the extended hex alphabet in lower case: legal in every cloud, and all of one case, so
// that two hashes differ in a cloud that ignores case too.
const hashDigits = "0123456789abcdefghijklmnopqrstuv"

var hashEncoding = base32.NewEncoding(hashDigits).WithPadding(base32.NoPadding)

// Map returns the cloud's name for the prefix and the request name. It depends on nothing else.
//
// A legal name stays unchanged. Of any other name Map keeps the readable part and appends a hash of the whole name, so two mapped
// names are equal only if their hashes are. The hash has 80 bits, or as many as fit into MaxLen. Map also appends a hash to a legal
// name that looks as if it had one; otherwise a request could choose the mapped name of another.
func (r NameRule) Map(prefix, name string) string {
	full := prefix + name
	if r.legal(full) && !r.looksHashed(full) {
		return full
	}
	tail := r.tail(full)
	head := r.readable(full)
	if room := r.MaxLen - len(tail); len(head) > room {
		head = head[:max(room, 0)]
	}
	head = strings.TrimRight(head, "-_")
	if head == "" {
		head = "v"
	}
	return head + tail
}

// CheckPrefix refuses a prefix that the cloud would refuse, or with which names have no space for 20 characters: a hash and a readable
// part, or what the provisioner is configured to use in a cloud with short names. words describes the rule in the error.
func (r NameRule) CheckPrefix(prefix, words string) error {
	longest := min(32, r.MaxLen-20)
	if prefix != "" && (len(prefix) > longest || r.Map(prefix, "a") != prefix+"a") {
		return fmt.Errorf("%q: %s; a prefix has at most %d: %w", prefix, words, longest, fault.InvalidArgument)
	}
	return nil
}

// FullHash returns 128 bits of the hash of a request name as 26 lower-case letters and digits. Backends store it with the volume as
// the tag cloudblock-name-hash, which distinguishes requests whose mapped names are equal. With its key it fits into 50 bytes, the
// length of the shortest tags.
func FullHash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hashEncoding.EncodeToString(sum[:16])
}

// hashLen returns how many characters of the hash fit after one readable character.
func (r NameRule) hashLen() int {
	return max(min(nameHashLen, r.MaxLen-len(hashMark)-1), 0)
}

func (r NameRule) tail(full string) string {
	sum := sha256.Sum256([]byte(full))
	return hashMark + hashEncoding.EncodeToString(sum[:])[:r.hashLen()]
}

// looksHashed reports whether the name could be one that Map has changed.
func (r NameRule) looksHashed(s string) bool {
	at := len(s) - len(hashMark) - r.hashLen()
	return at >= 0 && strings.HasPrefix(s[at:], hashMark) && strings.Trim(s[at+len(hashMark):], hashDigits) == ""
}

func (r NameRule) legal(s string) bool {
	if s == "" || len(s) < r.MinLen || len(s) > r.MaxLen {
		return false
	}
	for i := range len(s) {
		if !r.allows(s[i]) {
			return false
		}
	}
	switch {
	case r.StartLetter && !isLetter(s[0]):
		return false
	case r.EndAlnum && isMark(s[len(s)-1]):
		return false
	case r.NoDoubles && (strings.Contains(s, "--") || strings.Contains(s, "__")):
		return false
	}
	return true
}

func (r NameRule) allows(c byte) bool {
	switch {
	case c >= 'A' && c <= 'Z':
		return r.Upper
	case c == '_':
		return r.Underscore
	default:
		return c == '-' || c >= '0' && c <= '9' || isLetter(c)
	}
}

// readable keeps the allowed characters and replaces each run of others with one '-'.
func (r NameRule) readable(s string) string {
	var b strings.Builder
	last := byte('-') // so that the name does not begin with a mark
	for i := range len(s) {
		c := s[i]
		if c >= 'A' && c <= 'Z' && !r.Upper {
			c += 'a' - 'A'
		}
		if !r.allows(c) {
			c = '-'
		}
		if isMark(c) && isMark(last) {
			continue
		}
		if b.Len() == 0 && r.StartLetter && !isLetter(c) {
			b.WriteString("v-") // a digit: keep it, after a letter
		}
		b.WriteByte(c)
		last = c
	}
	return b.String()
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }

func isMark(c byte) bool { return c == '-' || c == '_' }
