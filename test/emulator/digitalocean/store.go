package digitalocean

// store keeps the volumes' data and gives it to this machine.
type store interface {
	create(v volume) error
	remove(v volume) error
	grow(v volume) error
	attach(v volume, d Droplet) error
	// detach reports that the device was in use; then the device stays, for the sake of this machine.
	detach(v volume, d Droplet) (inUse bool, err error)
	snapshot(v volume, id string) error
	removeSnapshot(id string) error
	close() error
}

// noStore is the store of an account whose volumes have no data.
type noStore struct{}

func (noStore) create(volume) error                  { return nil }
func (noStore) remove(volume) error                  { return nil }
func (noStore) grow(volume) error                    { return nil }
func (noStore) attach(volume, Droplet) error         { return nil }
func (noStore) detach(volume, Droplet) (bool, error) { return false, nil }
func (noStore) snapshot(volume, string) error        { return nil }
func (noStore) removeSnapshot(string) error          { return nil }
func (noStore) close() error                         { return nil }

func (c *Cloud) openStore(string) error {
	c.disks = noStore{}
	return nil
}

func (c *Cloud) closeStore() error { return c.disks.close() }
