package account

import "context"

// Testing is what an account needs of a *testing.T.
type Testing interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Name() string
	Logf(format string, args ...any)
}

// Account is an emulated account that a test can start.
type Account interface {
	Listen(ctx context.Context, address string) error
	Close() error
	// Report fails the test for what the account's exchanges broke; it is called after Close.
	Report(t Testing)
}

// Live lets an account live as long as the test, with a listener unless it is to be in memory only. err is
// that of making it.
func Live(t Testing, a Account, err error, inMemory bool) {
	t.Helper()
	if err != nil {
		t.Fatalf("start the emulated account: %v", err)
	}
	if !inMemory {
		if err := a.Listen(t.Context(), "127.0.0.1:0"); err != nil {
			t.Fatalf("start the emulated account: %v", err)
		}
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Errorf("clean up the emulated account: %v", err)
		}
		a.Report(t)
	})
}
