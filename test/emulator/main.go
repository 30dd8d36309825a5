// Command emulator serves an emulated cloud on the loopback address until it is interrupted, for any
// client of the real API: see docs/emulators.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
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
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "emulator:", err)
		os.Exit(1)
	}
}

// run serves the cloud that the flags ask for until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("emulator", flag.ContinueOnError)
	flags.SetOutput(out)
	cloud := flags.String("cloud", "digitalocean", "which cloud: digitalocean")
	var opts digitalocean.Options
	flags.StringVar(&opts.Token, "token", digitalocean.DefaultToken, "token that requests must bear")
	flags.StringVar(&opts.Region, "region", digitalocean.DefaultRegion, "region of the droplets")
	flags.IntVar(&opts.Droplets, "droplets", 1, "number of machines")
	flags.Uint64Var(&opts.Seed, "seed", 1, "seed of everything that is left to chance")
	flags.Float64Var(&opts.Speed, "speed", 1, "how many times faster than the wall clock the account's time runs")
	flags.StringVar(&opts.DataDir, "data-dir", "", "folder for the volumes' data; empty: volumes have none")
	var where listeners
	flags.StringVar(&where.plain, "listen", "127.0.0.1:0", "loopback address to listen on")
	flags.StringVar(&where.tls, "tls-listen", "", "address to listen on with TLS as well, for clients that are not on this machine's loopback")
	metadata := flags.String("metadata-listen", "", "comma-separated addresses, one for each of the first droplets: its metadata service at the usual path, for a network that leads 169.254.169.254 there")
	flags.StringVar(&where.authority, "ca-file", "", "file to write the certificate of --tls-listen to")
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
	where.metadata = split(*metadata)
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
	return serve(ctx, where, opts, dirs, out)
}

// listeners says where an account is served.
type listeners struct {
	plain, tls, authority string
	metadata              []string
}

func (l listeners) open(ctx context.Context, account *digitalocean.Cloud, out io.Writer) error {
	if err := account.Listen(ctx, l.plain); err != nil {
		return err
	}
	fmt.Fprintf(out, "API       %s\n", account.URL)
	if l.tls == "" {
		return nil
	}
	if l.authority == "" {
		return errors.New("--tls-listen needs --ca-file, or no client can trust it")
	}
	host, _, err := net.SplitHostPort(l.tls)
	if err != nil {
		return err
	}
	url, authority, err := account.ListenTLS(ctx, l.tls, host)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "API       %s   trusted by %s\n", url, l.authority)
	return os.WriteFile(l.authority, authority, 0o644)
}

// openMetadata tells where the metadata service of each droplet is: below the API's address, or at one of
// its own.
func (l listeners) openMetadata(ctx context.Context, account *digitalocean.Cloud, out io.Writer) error {
	droplets := account.Droplets()
	if len(l.metadata) > len(droplets) {
		return fmt.Errorf("--metadata-listen has %d addresses for %d droplets", len(l.metadata), len(droplets))
	}
	for i, id := range droplets {
		url := account.Metadata(id)
		if i < len(l.metadata) {
			var err error
			if url, err = account.ListenMetadata(ctx, id, l.metadata[i]); err != nil {
				return err
			}
		}
		fmt.Fprintf(out, "droplet   %d   metadata %s\n", id, url)
	}
	return nil
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func serve(ctx context.Context, where listeners, opts digitalocean.Options, dirs []string, out io.Writer) error {
	account, err := digitalocean.New(opts)
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		account.AddDroplet(digitalocean.Droplet{DeviceDir: dir})
	}
	if err := where.open(ctx, account, out); err != nil {
		return errors.Join(err, account.Close())
	}
	fmt.Fprintf(out, "token     %s\ncontrol   %s/_emulator/\n", account.Token, account.URL)
	if err := where.openMetadata(ctx, account, out); err != nil {
		return errors.Join(err, account.Close())
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
