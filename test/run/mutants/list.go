package main

// mutants are the faults.
func mutants() []mutant {
	return []mutant{
		{
			"a hanging call does not stop those after it", "internal/wait/guard.go",
			"case <-ctx.Done():\n\t\tg.mu.Lock()", "case <-time.After(time.Hour):\n\t\tg.mu.Lock()", "internal/wait",
		},
		{
			"the file of a call without a caller stays open", "internal/wait/guard.go",
			"if f != nil {", "if f == nil {", "internal/wait",
		},
	}
}
