package api

import (
	"cmp"
	"strconv"
	"strings"
)

// Number returns the number that an id is in a cloud that numbers its objects from 1, or false for an id that such a cloud
// cannot have made.
func Number[T ~string](id T) (int, bool) {
	n, err := strconv.Atoi(string(id))
	return n, err == nil && n > 0 && strconv.Itoa(n) == string(id)
}

// ByNumber compares two such ids.
func ByNumber(a, b string) int {
	if order := cmp.Compare(len(a), len(b)); order != 0 {
		return order
	}
	return strings.Compare(a, b)
}
