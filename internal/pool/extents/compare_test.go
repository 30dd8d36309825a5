package extents

import (
	"errors"
	"reflect"
	"slices"
	"testing"
)

// list returns a Source of these mappings.
func list(mappings ...Mapping) Source {
	return func() (Mapping, bool, error) {
		if len(mappings) == 0 {
			return Mapping{}, false, nil
		}
		m := mappings[0]
		mappings = mappings[1:]
		return m, true, nil
	}
}

func changed(t *testing.T, base, target Source, start, size int64) []Range {
	t.Helper()
	var found []Range
	if err := Changed(base, target, start, size, func(r Range) error {
		found = append(found, r)
		return nil
	}); err != nil {
		t.Fatalf("Changed: %v", err)
	}
	return found
}

// C16: each kind of difference between two extent maps is a change.
func TestChanged(t *testing.T) {
	at := func(start, length, physical int64, flags uint32) Mapping {
		return Mapping{Range{start, length}, physical, flags}
	}
	for name, tc := range map[string]struct {
		base, target []Mapping
		want         []Range
	}{
		"two empty files":                        {nil, nil, nil},
		"the same blocks":                        {[]Mapping{at(10, 20, 500, Shared)}, []Mapping{at(10, 20, 500, Shared|Last)}, nil},
		"the same blocks in other pieces":        {[]Mapping{at(10, 20, 500, 0)}, []Mapping{at(10, 5, 500, Merged), at(15, 15, 505, 0)}, nil},
		"other blocks":                           {[]Mapping{at(10, 20, 500, 0)}, []Mapping{at(10, 20, 700, 0)}, []Range{{10, 20}}},
		"the same blocks at another offset":      {[]Mapping{at(10, 20, 500, 0)}, []Mapping{at(12, 20, 500, 0)}, []Range{{10, 22}}},
		"other blocks in the middle":             {[]Mapping{at(0, 30, 500, 0)}, []Mapping{at(0, 10, 500, 0), at(10, 5, 90, 0), at(15, 15, 515, 0)}, []Range{{10, 5}}},
		"data where a hole was":                  {nil, []Mapping{at(10, 20, 500, 0)}, []Range{{10, 20}}},
		"a hole where data was":                  {[]Mapping{at(10, 20, 500, 0)}, nil, []Range{{10, 20}}},
		"data where unwritten blocks were":       {[]Mapping{at(10, 20, 500, Unwritten)}, []Mapping{at(10, 20, 500, 0)}, []Range{{10, 20}}},
		"unwritten blocks where data was":        {[]Mapping{at(10, 20, 500, 0)}, []Mapping{at(10, 20, 500, Unwritten)}, []Range{{10, 20}}},
		"unwritten blocks where a hole was":      {nil, []Mapping{at(10, 20, 500, Unwritten)}, nil},
		"a hole where unwritten blocks were":     {[]Mapping{at(10, 20, 500, Unwritten|Shared)}, nil, nil},
		"other unwritten blocks":                 {[]Mapping{at(10, 20, 500, Unwritten)}, []Mapping{at(10, 20, 900, Unwritten)}, nil},
		"the same delayed blocks":                {[]Mapping{at(10, 20, 0, Delayed|Unknown)}, []Mapping{at(10, 20, 0, Delayed|Unknown)}, []Range{{10, 20}}},
		"the same encoded blocks":                {[]Mapping{at(10, 20, 500, 0x8)}, []Mapping{at(10, 20, 500, 0x8)}, []Range{{10, 20}}},
		"the same inline data":                   {[]Mapping{at(10, 20, 500, 0x200)}, []Mapping{at(10, 20, 500, 0x200)}, []Range{{10, 20}}},
		"a flag that is not known":               {[]Mapping{at(10, 20, 500, 0x100000)}, []Mapping{at(10, 20, 500, 0x100000)}, []Range{{10, 20}}},
		"unwritten blocks that are delayed":      {nil, []Mapping{at(10, 20, 500, Unwritten|Delayed)}, []Range{{10, 20}}},
		"changes that touch are one":             {[]Mapping{at(10, 20, 500, 0)}, []Mapping{at(10, 5, 700, 0), at(15, 15, 900, 0), at(30, 4, 100, 0)}, []Range{{10, 24}}},
		"what is beyond the size is not read":    {nil, []Mapping{at(90, 20, 500, 0), at(110, 5, 0, 0)}, []Range{{90, 10}}},
		"data that a growth has added":           {[]Mapping{at(0, 50, 500, 0)}, []Mapping{at(0, 50, 500, 0), at(60, 10, 900, 0)}, []Range{{60, 10}}},
		"blocks of the base elsewhere in target": {[]Mapping{at(0, 10, 500, 0), at(10, 10, 700, 0)}, []Mapping{at(0, 10, 700, 0), at(10, 10, 500, 0)}, []Range{{0, 20}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := changed(t, list(tc.base...), list(tc.target...), 0, 100); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("Changed = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestChangedEndsWithTheFirstError(t *testing.T) {
	broken := errors.New("broken")
	read := func() (Mapping, bool, error) { return Mapping{}, false, broken }
	data := Mapping{Range: Range{0, 10}}
	none := func(Range) error { return nil }
	for name, err := range map[string]error{
		"of the base":     Changed(read, Nothing, 0, 10, none),
		"of the target":   Changed(Nothing, read, 0, 10, none),
		"of the receiver": Changed(Nothing, list(data), 0, 10, func(Range) error { return broken }),
	} {
		if !errors.Is(err, broken) {
			t.Errorf("Changed with an error %s = %v", name, err)
		}
	}
	for name, disorder := range map[string]Source{
		"descending":  list(Mapping{Range: Range{20, 5}}, Mapping{Range: Range{0, 30}}),
		"overlapping": list(Mapping{Range: Range{0, 20}}, Mapping{Range: Range{10, 30}}),
		"empty":       list(Mapping{Range: Range{10, 0}}),
	} {
		if err := Changed(Nothing, disorder, 0, 100, none); !errors.Is(err, errDisorder) {
			t.Errorf("Changed with %s mappings = %v, want an error", name, err)
		}
	}
}

// unit is the size of a block of the model.
const unit = 4

// mappingsOf returns the mappings of a file with one byte for each block: 0 is a hole, an odd number blocks that are where an even
// one would be, and unwritten; 254 are delayed blocks. A bit of pieces decides whether a mapping goes on in the next block.
func mappingsOf(file []byte, pieces uint64) []Mapping {
	var found []Mapping
	for i, b := range file {
		m := Mapping{Range{int64(i) * unit, unit}, (int64(b/2)*100 + int64(i)) * unit, 0}
		switch {
		case b == 0:
			continue
		case b == 254:
			m.Flags = Delayed
		case b%2 == 1:
			m.Flags = Unwritten
		}
		if last := len(found) - 1; last >= 0 && pieces>>(i%64)&1 == 1 &&
			found[last].End() == m.Start && found[last].Physical+found[last].Length == m.Physical && found[last].Flags == m.Flags {
			found[last].Length += unit
			continue
		}
		found = append(found, m)
	}
	return found
}

// differs is the model: whether a block may read differently in the two files.
func differs(base, target byte) bool {
	zero := func(b byte) bool { return b%2 == 1 || b == 0 }
	switch {
	case base == 254 || target == 254:
		return true
	case zero(base) || zero(target):
		return zero(base) != zero(target)
	}
	return base != target
}

// C16: the comparison of two extent maps equals that of a model, block by block.
func FuzzChangedIsWhatAModelSays(f *testing.F) {
	f.Add([]byte{0, 2, 2, 3, 254, 4}, []byte{0, 2, 4, 0, 254, 5, 6}, uint64(0b101010), uint64(1), uint16(3))
	f.Add([]byte{}, []byte{2, 2, 2, 0, 0, 8}, uint64(1<<63|0xf), uint64(0), uint16(0))
	f.Add([]byte{8, 8, 8, 8}, []byte{8, 9, 8, 254}, ^uint64(0), ^uint64(0), uint16(7))
	f.Fuzz(func(t *testing.T, base, target []byte, pieces, others uint64, start uint16) {
		size := int64(len(target)) * unit
		from := min(int64(start), size)
		var want []Range
		for i := range target {
			r := Range{int64(i) * unit, unit}
			was := byte(0)
			if i < len(base) {
				was = base[i]
			}
			if !differs(was, target[i]) || r.End() <= from {
				continue
			}
			if r.Start < from {
				r = Range{from, r.End() - from}
			}
			if last := len(want) - 1; last >= 0 && want[last].End() == r.Start {
				want[last].Length += r.Length
				continue
			}
			want = append(want, r)
		}
		got := changed(t, list(mappingsOf(base, pieces)...), list(mappingsOf(target, others)...), from, size)
		if !slices.Equal(got, want) {
			t.Errorf("Changed of %v and %v from %d = %v, want %v", base, target, from, got, want)
		}
	})
}
