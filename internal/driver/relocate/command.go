// Package relocate is the sub-command relocate: it moves a volume to another zone of the cloud, and prints what the cluster has to be
// told then. The cluster is changed by a person: the program has no rights there.
package relocate

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

const usage = `Usage: %s relocate VOLUME ZONE [flags of the program] [--pv FILE [--patch]]

Moves the volume with this id of the cloud to another zone, where the cloud can do that. The volume must not be attached: scale the
workload to zero before. With --pv it prints the PersistentVolume for the new zone to the standard output, and to the standard error
how to replace the old one. A repeat continues what an interrupted run has begun, and repeats nothing that is done.`

// longest is how long a run waits for the cloud. It is far more than the move of the largest volume takes.
const longest = 48 * time.Hour

// Command is the sub-command relocate.
type Command struct {
	// Flags are those of the program, Own adds those of this sub-command of the program, and Others are the settings that only the
	// other program has.
	Flags  *flag.FlagSet
	Own    func(*flag.FlagSet)
	Others []string
	// Validate checks the flags after they were read. Names is set then.
	Validate func() error
	Names    *driver.Names
	// Move moves a volume, and returns when it is in the zone. It calls step with what it waits for next.
	Move func(ctx context.Context, volume, zone string, step func(what string)) error
}

// Run reads the command line, moves the volume and prints what has to be done with its PersistentVolume.
func (c Command) Run(ctx context.Context, args []string, environ driver.Environment, stdout, stderr io.Writer) error {
	var file string
	var patch bool
	settings := driver.SettingsOf(c.Flags, c.Others...) // not the flags of the sub-command alone
	own := func(fs *flag.FlagSet) {
		fs.StringVar(&file, "pv", "", "a `file` with the PersistentVolume of the volume: the output of kubectl get pv NAME -o json; - is the standard input")
		fs.BoolVar(&patch, "patch", false, "print a patch of the PersistentVolume, for clusters with the feature gate MutablePVNodeAffinity")
		c.Own(fs)
	}
	named := 0
	for named < len(args) && !strings.HasPrefix(args[named], "-") {
		named++
	}
	err := driver.ParseCommand(c.Flags, own, args[named:], stdout, fmt.Sprintf(usage, c.Flags.Name()))
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	err = errors.Join(err, settings.Read(c.Flags, environ), c.Validate())
	if named != 2 {
		err = errors.Join(err, fmt.Errorf("relocate: it needs VOLUME and ZONE before the flags, and got %d arguments there", named))
	}
	if patch && file == "" {
		err = errors.Join(err, errors.New("--patch: only with --pv"))
	}
	if err != nil {
		return fmt.Errorf("%w:\n%w", driver.ErrCommandLine, err)
	}
	id, zone := args[0], args[1]
	var pv *persistentVolume
	if file != "" { // all that can be wrong with it shows before the volume is moved
		if pv, err = readPersistentVolume(file); err == nil {
			err = pv.fit(*c.Names, id, zone)
		}
		if err != nil {
			return driver.InFlag("--pv", err)
		}
	}
	bounded, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	waits := &waiting{out: stderr}
	err = c.Move(bounded, id, zone, waits.step)
	waits.end()
	if err != nil {
		return err
	}
	return tell(pv, patch, fmt.Sprintf("volume %s is in %s", id, zone), stdout, stderr)
}

// tell prints the new PersistentVolume, and what has to be done with it.
func tell(pv *persistentVolume, patch bool, done string, stdout, stderr io.Writer) error {
	if pv == nil {
		_, err := fmt.Fprintf(stderr, "%s. Its PersistentVolume names the old zone: run the command again with --pv\n", done)
		return err
	}
	printed, steps := pv.again()
	end := "Then scale the workload up."
	if patch {
		printed, steps = pv.patch()
	} else if pv.kept() {
		end += " The reclaim policy stays Retain, as the file of --pv has it. If you read that after the first of these commands, set the earlier policy again."
	}
	encoder := json.NewEncoder(stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(printed); err != nil {
		return err
	}
	_, err := fmt.Fprintf(stderr, "%s. While the workload is scaled to zero, in this order, with what was printed as FILE:\n  %s\n%s\n",
		done, strings.Join(steps, "\n  "), end)
	return err
}
