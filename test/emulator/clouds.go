package main

import (
	"errors"
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/contract"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/linode"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/yandex"
)

type digitalOceanAccount struct{ *digitalocean.Cloud }

func openDigitalOcean(w wish) (account, error) {
	c, err := digitalocean.New(digitalocean.Options{
		Token: w.token, Region: w.region, Seed: w.seed, Speed: w.speed, Droplets: w.machines, DataDir: w.dataDir,
		Durations: digitalocean.Actions(w.lasting), Limits: w.limits,
	})
	if err != nil {
		return nil, err
	}
	for _, dir := range w.deviceDirs {
		c.AddDroplet(digitalocean.Droplet{DeviceDir: dir})
	}
	return digitalOceanAccount{c}, nil
}

func (a digitalOceanAccount) kind() string        { return "droplet" }
func (a digitalOceanAccount) address() string     { return a.URL }
func (a digitalOceanAccount) secret() string      { return a.Token }
func (a digitalOceanAccount) machines() []machine { return machinesOf(a.Cloud, a.Droplets()) }

func (a digitalOceanAccount) violations() (all []string) {
	for _, v := range a.Violations() {
		all = append(all, fmt.Sprintf("violation %s: volume %s on droplet %d", v.What, v.VolumeName, v.Droplet))
	}
	return all
}

type linodeAccount struct{ *linode.Cloud }

func openLinode(w wish) (account, error) {
	c, err := linode.New(linode.Options{
		Token: w.token, Region: w.region, Seed: w.seed, Speed: w.speed, Linodes: w.machines, DataDir: w.dataDir,
		Durations: linode.Each(w.lasting), Limits: w.limits,
	})
	if err != nil {
		return nil, err
	}
	for _, dir := range w.deviceDirs {
		// This machine's own disks are none of the Linode's, and tests need more volumes than the usual six.
		c.AddLinode(linode.Linode{DeviceDir: dir, Type: "g6-standard-8", Disks: -1})
	}
	return linodeAccount{c}, nil
}

func (a linodeAccount) kind() string        { return "linode" }
func (a linodeAccount) address() string     { return a.URL }
func (a linodeAccount) secret() string      { return a.Token }
func (a linodeAccount) machines() []machine { return machinesOf(a.Cloud, a.Linodes()) }

func (a linodeAccount) violations() (all []string) {
	for _, v := range a.Violations() {
		all = append(all, fmt.Sprintf("violation %s: volume %s on Linode %d", v.What, v.Label, v.Linode))
	}
	return all
}

type yandexAccount struct{ *yandex.Cloud }

func openYandex(w wish) (account, error) {
	if len(w.limits) > 0 {
		return nil, errors.New("--limits: Yandex Cloud publishes no rate limits, so there are none to emulate")
	}
	c, err := yandex.New(yandex.Options{
		Token: w.token, Zone: w.region, Seed: w.seed, Speed: w.speed, Instances: w.machines, DataDir: w.dataDir,
		Durations: yandex.Each(w.lasting),
	})
	if err != nil {
		return nil, err
	}
	for _, dir := range w.deviceDirs {
		c.AddInstance(yandex.Instance{DeviceDir: dir})
	}
	return yandexAccount{c}, nil
}

func (a yandexAccount) kind() string              { return "instance" }
func (a yandexAccount) address() string           { return a.URL }
func (a yandexAccount) secret() string            { return a.Token }
func (a yandexAccount) machines() []machine       { return machinesOf(a.Cloud, a.Instances()) }
func (a yandexAccount) Contract() contract.Totals { return contract.Totals{} }

func (a yandexAccount) Unchecked() string {
	return "the exchanges are checked by their types only: there is no OpenAPI description of a gRPC API"
}

func (a yandexAccount) violations() (all []string) {
	for _, v := range a.Violations() {
		all = append(all, fmt.Sprintf("violation %s: disk %s on instance %s", v.What, v.DiskName, v.Instance))
	}
	return all
}
