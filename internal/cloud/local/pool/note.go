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

// note is the content of Config.IDFile: which pool this node has, and the folder it was in.
type note struct {
	ID  string `json:"id"`
	Dir string `json:"pool"`
}

// readNote returns the zero note when there is none.
func readNote(file string) (note, error) {
	if file == "" {
		return note{}, nil
	}
	data, err := readFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return note{}, nil
	}
	var n note
	if err == nil {
		err = json.Unmarshal(data, &n)
	}
	if err == nil {
		_, err = ParseID(n.ID)
	}
	if err != nil {
		return note{}, fmt.Errorf("read the id of this node's pool from %s: %w: %w", file, fault.Precondition, err)
	}
	return n, nil
}

// checkPresent refuses a folder without pool.json when this node has had a pool before: its disk is
// not mounted, or the folder is another one.
func (p *Pool) checkPresent(file string, n note) error {
	if _, err := os.Lstat(p.path(metaFile)); n.ID == "" || !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("the pool of this node, id %s, was in %s and is not in %s; is its disk mounted? To begin with an empty pool, remove %s: %w",
		n.ID, n.Dir, p.dir, file, fault.Precondition)
}

// keepNote compares the pool that was opened with the note, and writes one where there is none. The
// pool serves nothing before the note is durable. Under the lock.
func (p *Pool) keepNote(file string, n note) error {
	switch {
	case file == "", n.ID == p.id:
		return nil
	case n.ID != "":
		return fmt.Errorf("the pool in %s has the id %s, but the pool of this node, last in %s, has the id %s; is the right disk mounted? To take this pool instead, remove %s: %w",
			p.dir, p.id, n.Dir, n.ID, file, fault.Precondition)
	}
	data, err := json.Marshal(note{ID: p.id, Dir: p.dir})
	if err == nil {
		// Not its parents: a mistyped path must not be made.
		err = os.Mkdir(filepath.Dir(file), folderPerm)
	}
	if err == nil {
		err = p.disk.syncFolder(filepath.Dir(filepath.Dir(file)))
	}
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = p.disk.replace(file, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the id of pool %s to %s: %w", p.dir, file, kindOf(err))
	}
	return nil
}
