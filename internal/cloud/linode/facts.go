package linode

import (
	"sync"
	"time"
)

// facts are what this process has seen of volumes. Nothing here decides anything: without it there are more
// requests. It also knows how old a look may be that still tells something new.
type facts struct {
	mu      sync.Mutex
	volumes map[int]volume
}

// saw takes in the state of a volume that was asked for alone, or that a change was answered with; asked is
// when.
func (k *facts) saw(v *volume, asked time.Time) {
	v.asked, v.sure = asked, asked.Round(0) // a machine that was stopped is not sure any more
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.volumes == nil {
		k.volumes = map[int]volume{}
	}
	k.volumes[v.id] = *v
}

// listed takes in an entry of a list, which may lag behind, and reports whether it can be believed: it is
// newer than what is known, or the same. One that tells something else of the same second, which is how
// exactly the cloud tells times, may be either, and one look at the volume alone tells.
func (k *facts) listed(v *volume, asked time.Time) bool {
	v.asked = asked
	k.mu.Lock()
	defer k.mu.Unlock()
	old, known := k.volumes[v.id]
	if known && (v.updated.Before(old.updated) || v.updated.Equal(old.updated) && !v.looksLike(&old)) {
		return false
	}
	if known && v.linode == old.linode {
		v.sure = old.sure
	}
	if k.volumes == nil {
		k.volumes = map[int]volume{}
	}
	k.volumes[v.id] = *v
	return true
}

// looksLike compares what changes in a volume's life.
func (v *volume) looksLike(w *volume) bool {
	return v.label == w.label && v.status == w.status && v.gib == w.gib && v.linode == w.linode && v.ready == w.ready
}

// change notes what a change that the cloud took on has made of a volume, where no answer tells: an older look
// is no news after that.
func (k *facts) change(id int, edit func(v *volume)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if v, known := k.volumes[id]; known {
		edit(&v)
		k.volumes[id] = v
	}
}

func (k *facts) forget(id int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.volumes, id)
}

// only forgets all but the volumes of a complete list, and what was seen after the list may have been taken.
func (k *facts) only(ids map[int]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, v := range k.volumes {
		if !ids[id] && time.Since(v.asked) > mostLag {
			delete(k.volumes, id)
		}
	}
}

// of returns what was last seen of a volume.
func (k *facts) of(id int) (volume, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, known := k.volumes[id]
	return v, known
}
