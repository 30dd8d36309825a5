package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/budget"
)

// limitsFlag reads limits of a cloud's API, such as 250/1m,5000/1h, into a variable.
func limitsFlag(to *[]budget.Window) func(text string) error {
	return func(text string) (err error) {
		*to, err = parseLimits(text)
		return err
	}
}

// parseLimits reads limits, which hold whatever the cloud says of its own. The longest one counts as the one
// that the cloud's headers speak of.
func parseLimits(text string) ([]budget.Window, error) {
	var all []budget.Window
	for part := range strings.SplitSeq(text, ",") {
		number, per, _ := strings.Cut(part, "/")
		calls, numberErr := strconv.Atoi(number)
		window, perErr := time.ParseDuration(per)
		if errors.Join(numberErr, perErr) != nil || calls < 1 || window < time.Second {
			return nil, fmt.Errorf("%q is not of the form CALLS/TIME, such as 250/1m", part)
		}
		all = append(all, budget.Window{Calls: calls, Per: window, Fixed: true})
	}
	slices.SortStableFunc(all, func(a, b budget.Window) int { return cmp.Compare(a.Per, b.Per) })
	all[len(all)-1].FromHeaders = true
	return all, nil
}
