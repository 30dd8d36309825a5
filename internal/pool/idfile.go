package pool

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

// idFile is the content of Config.IDFile: the id of this node's pool, and its folder.
type idFile struct {
	ID  string `json:"id"`
	Dir string `json:"pool"`
}

// readIDFile returns the zero value when the file is missing.
func readIDFile(file string) (idFile, error) {
	if file == "" {
		return idFile{}, nil
	}
	data, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return idFile{}, nil
	}
	var n idFile
	if err == nil {
		err = json.Unmarshal(data, &n)
	}
	if err == nil {
		_, err = ParseID(n.ID)
	}
	if err != nil {
		return idFile{}, fmt.Errorf("read the id of this node's pool from %s: %w: %w", file, fault.PoolUnusable, err)
	}
	return n, nil
}

// checkPresent refuses a folder without pool.json when the id file names a pool: its disk is not mounted,
// or Config.Dir has changed.
func (p *Pool) checkPresent(file string, n idFile) error {
	if _, err := os.Lstat(p.path(metaFile)); n.ID == "" || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("the pool of this node, id %s, was in %s and is not in %s; is its disk mounted? To begin with an empty pool, remove %s: %w",
		n.ID, n.Dir, p.dir, file, fault.PoolUnusable)
}

// checkIDFile compares the opened pool with the content of the id file, and writes the file if it is missing. The pool
// serves no call before the file is durable. The caller holds the lock.
func checkIDFile(d disk, file string, n, opened idFile) error {
	switch {
	case file == "", n.ID == opened.ID:
		return nil
	case n.ID != "":
		return fmt.Errorf("the pool in %s has the id %s, but the pool of this node, last in %s, has the id %s; is the right disk mounted? To take this pool instead, remove %s: %w",
			opened.Dir, opened.ID, n.Dir, n.ID, file, fault.PoolUnusable)
	}
	data, err := json.Marshal(opened)
	if err == nil {
		// Mkdir, not MkdirAll: a mistyped path must fail.
		err = os.Mkdir(filepath.Dir(file), folderPerm)
	}
	if err == nil {
		err = d.syncFolder(filepath.Dir(filepath.Dir(file)))
	}
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = d.replace(file, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the id of pool %s to %s: %w", opened.Dir, file, kindOf(err))
	}
	return nil
}
