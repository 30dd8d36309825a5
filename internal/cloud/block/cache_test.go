package block

import "testing"

func TestACacheIsBounded(t *testing.T) {
	var c Cache[int, string]
	if _, known := c.Get(1); known {
		t.Error("an empty cache has an entry")
	}
	if c.Put(1, "a") || !c.Put(1, "b") {
		t.Error("Put reports the entry before it wrongly")
	}
	if v, known := c.Get(1); v != "b" || !known {
		t.Errorf("Get = %q, %v, want b", v, known)
	}
	c.Invalidate(1)
	if _, known := c.Get(1); known {
		t.Error("an entry is there after Invalidate")
	}
	for n := range 3 * maxCached {
		c.Put(n, "x")
	}
	if len(c.of) > maxCached {
		t.Errorf("it has %d entries, want %d at most", len(c.of), maxCached)
	}
	if _, known := c.Get(3*maxCached - 1); !known {
		t.Error("the newest entry is lost")
	}
}
