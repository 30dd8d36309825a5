package doctor

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/cloudblock-csi/cloudblock-csi/internal/driver"
)

const usage = `Usage: %s doctor [flags of the program] [--output json]

Says what would keep the program with these flags from its work here, and what to do. It changes nothing.`

// Command is the sub-command doctor: with the flags of the program it says what is wrong where the program would run.
type Command struct {
	// Flags are those of the program, and Others the settings that only the other program has.
	Flags  *flag.FlagSet
	Others []string
	// Validate checks the flags after they were read. Checks then returns the list of the program.
	Validate func() error
	Checks   func() []Check
}

// Run reads the command line and prints what the checks find. It returns an error if something is wrong.
func (c Command) Run(ctx context.Context, args []string, environ driver.Environment, stdout io.Writer) error {
	settings := driver.SettingsOf(c.Flags, c.Others...) // not the flag of the sub-command alone
	var output string
	own := func(fs *flag.FlagSet) { fs.StringVar(&output, "output", "table", "table or json") }
	err := driver.ParseCommand(c.Flags, own, args, stdout, fmt.Sprintf(usage, c.Flags.Name()))
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err := errors.Join(err, settings.Read(c.Flags, environ), c.Validate(), CheckOutput(output)); err != nil {
		return fmt.Errorf("%w:\n%w", driver.ErrCommandLine, err)
	}
	return Examine(ctx, c.Checks()).Print(stdout, output)
}
