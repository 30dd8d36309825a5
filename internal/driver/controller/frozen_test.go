package controller

import (
	"maps"
	"slices"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/golden"
)

// TestParametersAreAsFrozen: classes that people have written have these. The parameters of one cloud are frozen in its package.
func TestParametersAreAsFrozen(t *testing.T) {
	names := []string{paramMkfsOptions, paramFormatNonZero, paramLUKS, paramTags, paramFilesystem}
	names = slices.Concat(names, limitNames(), slices.Collect(maps.Keys(volumeMetadata)), slices.Collect(maps.Keys(snapshotMetadata)))
	golden.Names(t, "parameters.txt", names)
}
