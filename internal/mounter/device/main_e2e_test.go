//go:build e2e

package device

import (
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/kit/loops"
)

func TestMain(m *testing.M) { loops.Main(m) }
