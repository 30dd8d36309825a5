// Command emulator serves an emulated cloud on the loopback address until it is interrupted, for any
// client of the real API: see docs/emulators.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/rest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "emulator:", err)
		stop()
		os.Exit(1)
	}
}

// run serves the cloud that the flags ask for until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("emulator", flag.ContinueOnError)
	flags.SetOutput(out)
	cloud := flags.String("cloud", "digitalocean", "which cloud: digitalocean")
	listen := flags.String("listen", "127.0.0.1:0", "loopback address to listen on")
	var opts digitalocean.Options
	flags.StringVar(&opts.Token, "token", digitalocean.DefaultToken, "token that requests must bear")
	flags.StringVar(&opts.Region, "region", digitalocean.DefaultRegion, "region of the droplets")
	flags.IntVar(&opts.Droplets, "droplets", 1, "number of machines")
	flags.Uint64Var(&opts.Seed, "seed", 1, "seed of everything that is left to chance")
	flags.Float64Var(&opts.Speed, "speed", 1, "how many times faster than the wall clock the account's time runs")
	flags.StringVar(&opts.DataDir, "data-dir", "", "folder for the volumes' data; empty: volumes have none")
	deviceDirs := flags.String("device-dirs", "", "comma-separated folders, one for each of the first droplets: these are this machine, and attaching makes a loop device with a link there (root; needs --data-dir)")
	lasting := clock.Fixed(2 * time.Second)
	flags.TextVar(&lasting, "action", &lasting, "how long actions take, as 2s or 2s+500ms")
	limits := flags.String("limits", "250/1m,5000/1h", "comma-separated rate limits; empty: none")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *cloud != "digitalocean" {
		return fmt.Errorf("unknown cloud %q: there is digitalocean", *cloud)
	}
	opts.Durations = digitalocean.Actions(lasting)
	for _, text := range split(*limits) {
		var limit rest.Limit
		if err := limit.UnmarshalText([]byte(text)); err != nil {
			return err
		}
		opts.Limits = append(opts.Limits, limit)
	}
	dirs := split(*deviceDirs)
	opts.Droplets = max(0, opts.Droplets-len(dirs))
	return serve(ctx, *listen, opts, dirs, out)
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func serve(ctx context.Context, listen string, opts digitalocean.Options, dirs []string, out io.Writer) error {
	account, err := digitalocean.New(opts)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		account.AddDroplet(digitalocean.Droplet{DeviceDir: dir})
	}
	if err := account.Listen(ctx, listen); err != nil {
		return errors.Join(err, account.Close())
	}
	fmt.Fprintf(out, "API       %s\ntoken     %s\ncontrol   %s/_emulator/\n", account.URL, account.Token, account.URL)
	for _, id := range account.Droplets() {
		fmt.Fprintf(out, "droplet   %d   metadata %s\n", id, account.Metadata(id))
	}
	if account.Unchecked() != "" {
		fmt.Fprintln(out, account.Unchecked())
	}
	<-ctx.Done()
	err = account.Close()
	for _, violation := range account.Violations() {
		fmt.Fprintf(out, "violation %s: volume %s on droplet %d\n", violation.What, violation.VolumeName, violation.Droplet)
	}
	if account.Unchecked() == "" {
		fmt.Fprintln(out, account.Contract())
	}
	return err
}
