// Command emulator serves an emulated cloud on the loopback address until it is interrupted, for any
// client of the real API: see docs/contributing/emulators.md.
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

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/accounts"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/clock"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/rest"
	"github.com/cloudblock-csi/cloudblock-csi/test/kit/emulator/yandex"
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
	name := flags.String("cloud", "digitalocean", "which cloud: "+strings.Join(accounts.Names(), ", "))
	var o accounts.Options
	flags.StringVar(&o.Token, "token", "emulator-token", "token that requests must bear")
	flags.StringVar(&o.Region, "region", "", "region, or on Yandex Cloud the zone, of the machines; empty: the cloud's usual one")
	flags.IntVar(&o.Machines, "machines", 1, "number of machines")
	flags.IntVar(&o.Machines, "droplets", 1, "the same as --machines")
	flags.Uint64Var(&o.Seed, "seed", 1, "seed of everything that is left to chance")
	flags.Float64Var(&o.Speed, "speed", 1, "how many times faster than the wall clock the account's time runs")
	flags.StringVar(&o.DataDir, "data-dir", "", "folder for the volumes' data; empty: volumes have none")
	var where listeners
	flags.StringVar(&where.plain, "listen", "127.0.0.1:0", "loopback address to listen on")
	flags.StringVar(&where.tls, "tls-listen", "", "address to listen on with TLS as well, for clients that are not on this machine's loopback")
	metadata := flags.String("metadata-listen", "", "comma-separated addresses, one for each of the first machines: its metadata service at the usual path, for a network that leads 169.254.169.254 there")
	flags.StringVar(&where.authority, "ca-file", "", "file to write the certificate of --tls-listen to")
	flags.StringVar(&where.key, "key-file", "", "file to write an authorized key to (Yandex Cloud)")
	deviceDirs := flags.String("device-dirs", "", "comma-separated folders, one for each of the first machines: these are this machine, and attaching makes a loop device with a link there (root; needs --data-dir)")
	o.Takes = clock.Fixed(2 * time.Second)
	flags.TextVar(&o.Takes, "action", &o.Takes, "how long operations take, as 2s or 2s+500ms")
	const real = "real"
	limits := flags.String("limits", real, "comma-separated rate limits, as 250/1m, or for Linode \"100/1m create\"; empty: none; real: those of the real API")
	if err := flags.Parse(args); err != nil {
		return err
	}
	var err error
	if *limits == real {
		o.Limits, err = accounts.Limits(*name)
	} else {
		o.Limits, err = limitsOf(*limits)
	}
	if err != nil {
		return err
	}
	where.metadata = split(*metadata)
	here := split(*deviceDirs)
	o.Machines = max(0, o.Machines-len(here))
	account, err := accounts.Start(*name, o)
	if err != nil {
		return err
	}
	switch a := account.(type) {
	case *accounts.Linode:
		// 64 slots, the maximum. This machine's own disks are none of the Linode's.
		a.Shape = linode.Linode{MemoryMB: 96 << 10, Disks: -1}
	case *accounts.Yandex:
		// A machine that takes many disks, and cannot see that itself.
		a.Shape = yandex.Instance{Generation: yandex.Generation12}
	}
	for _, dir := range here {
		account.AddMachine(dir)
	}
	return serve(ctx, where, account, out)
}

// limitsOf reads rate limits.
func limitsOf(list string) (limits []rest.Limit, err error) {
	for _, text := range split(list) {
		var limit rest.Limit
		if err := limit.UnmarshalText([]byte(text)); err != nil {
			return nil, err
		}
		limits = append(limits, limit)
	}
	return limits, nil
}

// listeners says where an account is served.
type listeners struct {
	plain, tls, authority, key string
	metadata                   []string
}

func (l listeners) open(ctx context.Context, account accounts.Account, out io.Writer) error {
	if err := account.Listen(ctx, l.plain); err != nil {
		return err
	}
	fmt.Fprintf(out, "API       %s\n", account.URL())
	if l.key != "" {
		if err := writeKey(account, l.key); err != nil {
			return err
		}
	}
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

// writeKey writes an authorized key, which only some clouds have.
func writeKey(account accounts.Account, path string) error {
	keyed, has := account.(interface{ NewKey() ([]byte, error) })
	if !has {
		return errors.New("--key-file: this cloud has no authorized keys")
	}
	key, err := keyed.NewKey()
	if err != nil {
		return err
	}
	return os.WriteFile(path, key, 0o600)
}

// openMetadata tells where the metadata service of each machine is: below the API's address, or at one of
// its own.
func (l listeners) openMetadata(ctx context.Context, account accounts.Account, out io.Writer) error {
	machines := account.Machines()
	if len(l.metadata) > len(machines) {
		return fmt.Errorf("--metadata-listen has %d addresses for %d machines", len(l.metadata), len(machines))
	}
	for i, m := range machines {
		url := account.Metadata(m)
		if i < len(l.metadata) {
			var err error
			if url, err = account.ListenMetadata(ctx, m, l.metadata[i]); err != nil {
				return err
			}
		}
		fmt.Fprintf(out, "%-9s %s   metadata %s\n", account.Kind(), m, url)
	}
	return nil
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func serve(ctx context.Context, where listeners, account accounts.Account, out io.Writer) error {
	if err := where.open(ctx, account, out); err != nil {
		return errors.Join(err, account.Close())
	}
	fmt.Fprintf(out, "token     %s\ncontrol   %s/_emulator/\n", account.Token(), account.URL())
	if err := where.openMetadata(ctx, account, out); err != nil {
		return errors.Join(err, account.Close())
	}
	if account.Unchecked() != "" {
		fmt.Fprintln(out, account.Unchecked())
	}
	<-ctx.Done()
	err := account.Close()
	for _, violation := range account.Violations() {
		fmt.Fprintln(out, "violation", violation)
	}
	if account.Unchecked() == "" {
		fmt.Fprintln(out, account.Contract())
	}
	return err
}
