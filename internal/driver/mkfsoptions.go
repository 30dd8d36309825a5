package driver

import (
	"fmt"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// mkfsOptionsLimit keeps the volume context below CSI's 4 KiB whatever else is in it.
const mkfsOptionsLimit = 1024

// ParseMkfsOptions splits the class parameter mkfsOptions at its spaces. No shell ever sees the
// words, so quotes have no meaning and are refused. A word that could name another device is refused
// too: mkfs would format that one, or put a journal on it.
func ParseMkfsOptions(s string) ([]string, error) {
	if len(s) > mkfsOptionsLimit {
		return nil, fmt.Errorf("mkfs options longer than %d bytes: %w", mkfsOptionsLimit, fault.InvalidArgument)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) {
		return nil, fmt.Errorf("mkfs options with a character that is not printable ASCII: %w", fault.InvalidArgument)
	}
	words := strings.Fields(s)
	if len(words) == 0 {
		return nil, nil
	}
	for i, word := range words {
		switch {
		case strings.ContainsAny(word, "'\"`\\$;|&<>"):
			return nil, fmt.Errorf("mkfs option %d has a quote or shell character, and there is no shell: %w", i+1, fault.InvalidArgument)
		case strings.ContainsRune(word, '/'), strings.Contains(word, "UUID="), strings.Contains(word, "LABEL="):
			return nil, fmt.Errorf("mkfs option %d names a file or a device: %w", i+1, fault.InvalidArgument)
		case i == 0 && !strings.HasPrefix(word, "-"):
			return nil, fmt.Errorf("mkfs options do not begin with an option: %w", fault.InvalidArgument)
		case word == "-" || word == "--":
			return nil, fmt.Errorf("mkfs option %d is a bare dash: %w", i+1, fault.InvalidArgument)
		}
	}
	return words, nil
}
