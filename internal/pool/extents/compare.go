package extents

import "errors"

// Source returns the mappings of a file in their order, one a call; false after the last one. Reader.Next is one.
type Source func() (Mapping, bool, error)

// Nothing is the Source of a file without data.
func Nothing() (Mapping, bool, error) { return Mapping{}, false, nil }

// Changed calls emit for every part of the bytes from a start up to a size that may read differently in two files, in order. Parts
// that touch are one. It ends with the first error of emit or of a Source.
//
// A part is omitted only with proof: it reads as zeros in both files, because it is a hole or Unwritten, or both have the same blocks
// for it. For this the blocks of both files must stay theirs while they are read, and hold what was written to the files.
func Changed(base, target Source, start, size int64, emit func(Range) error) error {
	from, to := cursor{next: base}, cursor{next: target}
	pending := Range{Start: start}
	for at := start; at < size; {
		was, until, err := from.at(at, size)
		if err != nil {
			return err
		}
		is, end, err := to.at(at, until)
		if err != nil {
			return err
		}
		if !same(was, is) {
			if pending.End() < at {
				if err := flush(pending, emit); err != nil {
					return err
				}
				pending = Range{Start: at}
			}
			pending.Length = end - pending.Start
		}
		at = end
	}
	return flush(pending, emit)
}

func flush(r Range, emit func(Range) error) error {
	if r.Length == 0 {
		return nil
	}
	return emit(r)
}

// content is what a file has in a part of it.
type content struct {
	kind kind
	// shift is the distance of the blocks from their place in the file; 0 if they have none.
	shift int64
}

type kind int

const (
	zeros kind = iota
	blocks
	// unsure: there may be data, and where is not known.
	unsure
)

func same(a, b content) bool { return a == b && a.kind != unsure }

func contentOf(m Mapping) content {
	switch {
	case m.Flags&^(Last|Unwritten|Merged|Shared) != 0: // delayed, encoded, inline, or a flag of a newer kernel
		return content{kind: unsure}
	case m.Flags&Unwritten != 0:
		return content{kind: zeros}
	}
	return content{blocks, m.Physical - m.Start}
}

// errDisorder is returned for mappings that overlap or are not in order: a file was changed while it was read.
var errDisorder = errors.New("the extents of a file are not in order; read them again")

// cursor is a position in the mappings of a file.
type cursor struct {
	next    Source
	mapping Mapping // the first that ends after the position
	ended   bool
}

// at returns what the file has at a position, and up to where, at most limit. Positions ascend.
func (c *cursor) at(position, limit int64) (content, int64, error) {
	for !c.ended && c.mapping.End() <= position {
		m, more, err := c.next()
		if err != nil {
			return content{}, 0, err
		}
		if more && (m.Length <= 0 || m.Start < c.mapping.End()) {
			return content{}, 0, errDisorder
		}
		c.mapping, c.ended = m, !more
	}
	switch {
	case c.ended:
		return content{kind: zeros}, limit, nil
	case position < c.mapping.Start:
		return content{kind: zeros}, min(c.mapping.Start, limit), nil
	}
	return contentOf(c.mapping), min(c.mapping.End(), limit), nil
}
