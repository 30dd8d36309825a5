//go:build e2e

package local_test

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
)

func TestMain(m *testing.M) { loops.Main(m) }
