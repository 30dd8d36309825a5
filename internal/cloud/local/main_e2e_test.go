//go:build e2e

package local_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/cloudblock-csi/cloudblock-csi/test/loops"
)

func TestMain(m *testing.M) {
	if err := loops.Fresh(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}
