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
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/contract"
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

// account is what the program needs of an emulated account.
type account interface {
	Listen(ctx context.Context, address string) error
	ListenTLS(ctx context.Context, address string, hosts ...string) (url string, authority []byte, err error)
	Contract() contract.Totals
	Unchecked() string
	Close() error

	// The rest differs in name only.
	kind() string // of its machines
	address() string
	secret() string
	machines() []machine
	violations() []string
}

// machine is a machine of an account, with the URL of its metadata service.
type machine struct {
	id, metadata string
	// listen serves its metadata service at an address of its own.
	listen func(ctx context.Context, address string) (url string, err error)
}

// site is the part of an account that knows where metadata services are.
type site[K any] interface {
	Metadata(machine K) string
	ListenMetadata(ctx context.Context, machine K, address string) (url string, err error)
}

func machinesOf[K any](s site[K], ids []K) (all []machine) {
	for _, id := range ids {
		all = append(all, machine{fmt.Sprint(id), s.Metadata(id), func(ctx context.Context, address string) (string, error) {
			return s.ListenMetadata(ctx, id, address)
		}})
	}
	return all
}

// wish is what the flags say about an account, whatever its cloud.
type wish struct {
	token, region, dataDir string // where region may be a zone
	machines               int    // besides those of deviceDirs
	deviceDirs             []string
	seed                   uint64
	speed                  float64
	lasting                clock.Span
	limits                 []rest.Limit
}

// clouds are the clouds, by name, with the rate limits of the real API.
var clouds = map[string]struct {
	open   func(wish) (account, error)
	limits string
}{
	"digitalocean": {openDigitalOcean, "250/1m,5000/1h"},
	"linode":       {openLinode, "1600/1m,200/1m list,100/1m create"},
	"yandex":       {openYandex, ""},
}

const known = "there are digitalocean, linode and yandex"

// run serves the cloud that the flags ask for until ctx ends.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("emulator", flag.ContinueOnError)
	flags.SetOutput(out)
	name := flags.String("cloud", "digitalocean", "which cloud: "+known)
	var w wish
	flags.StringVar(&w.token, "token", "emulator-token", "token that requests must bear")
	flags.StringVar(&w.region, "region", "", "region, or on Yandex Cloud the zone, of the machines; empty: the cloud's usual one")
	flags.IntVar(&w.machines, "machines", 1, "number of machines")
	flags.IntVar(&w.machines, "droplets", 1, "the same as --machines")
	flags.Uint64Var(&w.seed, "seed", 1, "seed of everything that is left to chance")
	flags.Float64Var(&w.speed, "speed", 1, "how many times faster than the wall clock the account's time runs")
	flags.StringVar(&w.dataDir, "data-dir", "", "folder for the volumes' data; empty: volumes have none")
	var where listeners
	flags.StringVar(&where.plain, "listen", "127.0.0.1:0", "loopback address to listen on")
	flags.StringVar(&where.tls, "tls-listen", "", "address to listen on with TLS as well, for clients that are not on this machine's loopback")
	metadata := flags.String("metadata-listen", "", "comma-separated addresses, one for each of the first machines: its metadata service at the usual path, for a network that leads 169.254.169.254 there")
	flags.StringVar(&where.authority, "ca-file", "", "file to write the certificate of --tls-listen to")
	flags.StringVar(&where.key, "key-file", "", "file to write an authorized key to (Yandex Cloud)")
	deviceDirs := flags.String("device-dirs", "", "comma-separated folders, one for each of the first machines: these are this machine, and attaching makes a loop device with a link there (root; needs --data-dir)")
	w.lasting = clock.Fixed(2 * time.Second)
	flags.TextVar(&w.lasting, "action", &w.lasting, "how long operations take, as 2s or 2s+500ms")
	const real = "real"
	limits := flags.String("limits", real, "comma-separated rate limits, as 250/1m, or for Linode \"100/1m create\"; empty: none; real: those of the real API")
	if err := flags.Parse(args); err != nil {
		return err
	}
	cloud, found := clouds[*name]
	if !found {
		return fmt.Errorf("unknown cloud %q: %s", *name, known)
	}
	if *limits == real {
		*limits = cloud.limits
	}
	for _, text := range split(*limits) {
		var limit rest.Limit
		if err := limit.UnmarshalText([]byte(text)); err != nil {
			return err
		}
		w.limits = append(w.limits, limit)
	}
	where.metadata, w.deviceDirs = split(*metadata), split(*deviceDirs)
	w.machines = max(0, w.machines-len(w.deviceDirs))
	opened, err := cloud.open(w)
	if err != nil {
		return err
	}
	return serve(ctx, where, opened, out)
}

// listeners says where an account is served.
type listeners struct {
	plain, tls, authority, key string
	metadata                   []string
}

func (l listeners) open(ctx context.Context, account account, out io.Writer) error {
	if err := account.Listen(ctx, l.plain); err != nil {
		return err
	}
	fmt.Fprintf(out, "API       %s\n", account.address())
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
func writeKey(account account, path string) error {
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
func (l listeners) openMetadata(ctx context.Context, account account, out io.Writer) error {
	machines := account.machines()
	if len(l.metadata) > len(machines) {
		return fmt.Errorf("--metadata-listen has %d addresses for %d machines", len(l.metadata), len(machines))
	}
	for i, m := range machines {
		url := m.metadata
		if i < len(l.metadata) {
			var err error
			if url, err = m.listen(ctx, l.metadata[i]); err != nil {
				return err
			}
		}
		fmt.Fprintf(out, "%-9s %s   metadata %s\n", account.kind(), m.id, url)
	}
	return nil
}

func split(list string) []string {
	if list == "" {
		return nil
	}
	return strings.Split(list, ",")
}

func serve(ctx context.Context, where listeners, account account, out io.Writer) error {
	if err := where.open(ctx, account, out); err != nil {
		return errors.Join(err, account.Close())
	}
	fmt.Fprintf(out, "token     %s\ncontrol   %s/_emulator/\n", account.secret(), account.address())
	if err := where.openMetadata(ctx, account, out); err != nil {
		return errors.Join(err, account.Close())
	}
	if account.Unchecked() != "" {
		fmt.Fprintln(out, account.Unchecked())
	}
	<-ctx.Done()
	err := account.Close()
	for _, violation := range account.violations() {
		fmt.Fprintln(out, violation)
	}
	if account.Unchecked() == "" {
		fmt.Fprintln(out, account.Contract())
	}
	return err
}
