package device

import (
	"errors"
	"strings"
)

var errBadVPD = errors.New("page 0x83 cannot be read")

// vpdNames returns the names that a SCSI disk gives itself in VPD page 0x83, as SPC-4 section 7.8.6
// lays it out: the vendor-specific ones, which is where the clouds put a volume's name, and the
// T10 ones without their vendor. A page that is cut off or does not add up is an error: half an
// identity is none.
func vpdNames(page []byte) (vendorSpecific, t10 []string, err error) {
	if len(page) < 4 || page[1] != 0x83 {
		return nil, nil, errBadVPD
	}
	end := 4 + int(page[2])<<8 + int(page[3])
	if end > len(page) {
		return nil, nil, errBadVPD
	}
	const (
		header      = 4
		ascii, utf8 = 2, 3
		vendorBytes = 8
	)
	for rest := page[4:end]; len(rest) > 0; {
		if len(rest) < header || len(rest) < header+int(rest[3]) {
			return nil, nil, errBadVPD
		}
		id := rest[header : header+int(rest[3])]
		codeSet, association, kind := rest[0]&0xf, rest[1]>>4&3, rest[1]&0xf
		rest = rest[header+len(id):]
		// Association 0 is the disk itself; the others name the port or the machine behind it.
		if association != 0 || codeSet != ascii && codeSet != utf8 {
			continue
		}
		switch {
		case kind == 0:
			vendorSpecific = appendName(vendorSpecific, id)
		case kind == 1 && len(id) > vendorBytes:
			t10 = appendName(t10, id[vendorBytes:])
		}
	}
	return vendorSpecific, t10, nil
}

// appendName adds a name without its padding, if anything is left of it.
func appendName(names []string, id []byte) []string {
	if name := strings.Trim(string(id), " \x00"); name != "" {
		names = append(names, name)
	}
	return names
}
