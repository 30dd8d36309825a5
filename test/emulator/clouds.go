package main

import (
	"fmt"

	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/digitalocean"
	"github.com/cloudblock-csi/cloudblock-csi/test/emulator/linode"
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

func (a digitalOceanAccount) kind() string    { return "droplet" }
func (a digitalOceanAccount) address() string { return a.URL }
func (a digitalOceanAccount) secret() string  { return a.Token }
func (a digitalOceanAccount) machines() []int { return a.Droplets() }

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
		c.AddLinode(linode.Linode{DeviceDir: dir})
	}
	return linodeAccount{c}, nil
}

func (a linodeAccount) kind() string    { return "linode" }
func (a linodeAccount) address() string { return a.URL }
func (a linodeAccount) secret() string  { return a.Token }
func (a linodeAccount) machines() []int { return a.Linodes() }

func (a linodeAccount) violations() (all []string) {
	for _, v := range a.Violations() {
		all = append(all, fmt.Sprintf("violation %s: volume %s on Linode %d", v.What, v.Label, v.Linode))
	}
	return all
}
