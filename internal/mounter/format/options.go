package format

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
	"github.com/cloudblock-csi/cloudblock-csi/internal/mounter"
)

// argument describes the argument of an option of a mkfs program.
type argument struct {
	takes bool
	// keys, where set, are the only words allowed in a value of the form key=x,key=x.
	keys []string
}

var (
	flag  = argument{}
	value = argument{takes: true}
)

func list(keys ...string) argument { return argument{takes: true, keys: keys} }

// mkfsOptions lists what a class may pass to each mkfs. Others are refused: some make mkfs use a second device, read a file of
// the node, write at an offset or not write at all, and a UUID from a class would be the same on all of its volumes.
var mkfsOptions = map[mounter.Filesystem]map[string]argument{
	mounter.Ext4: {
		"-b": value, "-C": value, "-e": value, "-g": value, "-G": value, "-i": value, "-I": value,
		"-L": value, "-m": value, "-N": value, "-T": value, "-q": flag, "-v": flag,
		"-O": value,
		"-J": list("size", "location", "fast_commit_size"),
		"-E": list("nodiscard", "lazy_itable_init", "lazy_journal_init", "stride", "stripe_width", "stripe-width",
			"resize", "packed_meta_blocks", "num_backup_sb", "root_owner", "desc_size", "desc-size", "hash_seed",
			"mmp_update_interval", "no_copy_xattrs", "quotatype", "encoding", "encoding_flags", "orphan_file_size", "revision"),
	},
	mounter.XFS: {
		"-b": list("size", "log"),
		"-d": list("agcount", "agsize", "su", "sw", "sunit", "swidth", "noalign", "cowextsize", "daxinherit", "extszinherit",
			"projinherit", "rtinherit", "sectsize"),
		"-i": list("size", "perblock", "maxpct", "align", "attr", "projid32bit", "sparse", "nrext64", "exchange"),
		"-l": list("size", "agnum", "internal", "version", "sunit", "su", "lazy-count", "sectsize"),
		"-m": list("crc", "finobt", "rmapbt", "reflink", "inobtcount", "bigtime", "metadir", "autofsck"),
		"-n": list("size", "log", "version", "ftype"),
		"-s": list("size", "log"),
		"-L": value, "-q": flag, "-f": flag, "-K": flag,
	},
}

// ValidateMkfsOptions refuses an option that a class may not give to the filesystem's mkfs, and
// anything that is not an option, such as the name of a device.
func ValidateMkfsOptions(fs mounter.Filesystem, options []string) error {
	if _, known := mkfsOptions[fs]; !known {
		return fmt.Errorf("filesystem %q is neither ext4 nor xfs: %w", fs, fault.InvalidArgument)
	}
	_, err := parseMkfsOptions(fs, options)
	return err
}

// mkfsOption is one option with its value.
type mkfsOption struct{ name, value string }

// parseMkfsOptions splits options as getopt does. An error has the number of the word, never the word itself.
func parseMkfsOptions(fs mounter.Filesystem, options []string) ([]mkfsOption, error) {
	var out []mkfsOption
	for i := 0; i < len(options); i++ {
		refuse := func(why string) error {
			return fmt.Errorf("word %d of the mkfs options of %s: %s: %w", i+1, fs, why, fault.InvalidArgument)
		}
		name, attached, has := splitOption(options[i])
		switch known, ok := mkfsOptions[fs][name]; {
		case name == "":
			return nil, refuse("is not an option; a device, a size or a file cannot be named")
		case !ok:
			return nil, refuse("is not one that a class may set")
		case !known.takes && has:
			return nil, refuse("takes no value; write one option per word")
		case !known.takes:
			out = append(out, mkfsOption{name, ""})
			continue
		case !has && i+1 == len(options):
			return nil, refuse("lacks its value")
		case !has:
			i++
			attached = options[i]
		}
		if err := checkKeys(mkfsOptions[fs][name].keys, attached); err != "" {
			return nil, refuse(err)
		}
		out = append(out, mkfsOption{name, attached})
	}
	return out, nil
}

// splitOption splits "-b4096" and "--label=x"; the name is empty for a word that is no option.
func splitOption(word string) (name, attached string, has bool) {
	switch {
	case strings.ContainsRune(word, 0):
		return "", "", false
	case strings.HasPrefix(word, "--") && len(word) > 2:
		return strings.Cut(word, "=")
	case len(word) >= 2 && word[0] == '-' && word[1] != '-':
		return word[:2], word[2:], len(word) > 2
	}
	return "", "", false
}

// checkKeys returns what is wrong with a value, or "".
func checkKeys(keys []string, val string) string {
	if val == "" || strings.ContainsRune(val, 0) {
		return "has an empty or unreadable value"
	}
	if keys == nil {
		return ""
	}
	for part := range strings.SplitSeq(val, ",") {
		if key, _, _ := strings.Cut(part, "="); !slices.Contains(keys, key) {
			return "has a key that is not one of " + strings.Join(keys, ", ")
		}
	}
	return ""
}

// splitExtended separates the values of -E from the other options of mkfs.ext4, which are valid.
func splitExtended(options []string) (rest, extended []string) {
	parsed, _ := parseMkfsOptions(mounter.Ext4, options) // they were validated on the way in
	for _, o := range parsed {
		switch {
		case o.name == "-E":
			extended = append(extended, o.value)
		case mkfsOptions[mounter.Ext4][o.name].takes:
			rest = append(rest, o.name, o.value)
		default:
			rest = append(rest, o.name)
		}
	}
	return rest, extended
}
