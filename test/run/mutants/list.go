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
		{
			"a record of another disk lets mkfs run", "internal/mounter/format.go",
			"case req.FormatNonZero && req.BlankCreated, req.Begun == BegunOnDevice:",
			"case req.FormatNonZero && req.BlankCreated, req.Begun != NotBegun:", "internal/mounter",
		},
		{
			"a record outweighs a signature", "internal/mounter/format.go",
			"case req.Begun == BegunOnDevice && id.is(req.Filesystem):", "case false:", "internal/mounter",
		},
		{
			"formatNonZero formats what this driver did not create blank", "internal/mounter/format.go",
			"case req.FormatNonZero && req.BlankCreated, req", "case req.FormatNonZero, req", "internal/mounter",
		},
		{
			"a read error in the probe counts as blank", "internal/mounter/probe.go",
			"if err := readFull(r, chunk, from); err != nil {\n\t\t\t\treturn -1, err", "if err := readFull(r, chunk, from); err != nil {\n\t\t\t\treturn -1, nil", "internal/mounter",
		},
		{
			"the last MiB is not read", "internal/mounter/probe.go",
			"{max(0, size-probeEnds), size}, ", "", "internal/mounter",
		},
		{
			"a superblock that blkid passes over counts as blank", "internal/mounter/format.go",
			"case id.nothing() && (super == \"\" ||", "case id.nothing() && (true ||", "internal/mounter",
		},
		{
			"the kernel's number of the disk is not compared", "internal/mounter/device/formats.go",
			" && now.Sequence != 0", "", "internal/mounter/device",
		},
		{
			"a format record that cannot be read counts as none", "internal/mounter/device/formats.go",
			"if errors.Is(err, fs.ErrNotExist) {\n\t\treturn false, false, nil", "if err != nil {\n\t\treturn false, false, nil", "internal/mounter/device",
		},
		{
			"the end of a format leaves its record", "internal/mounter/device/formats.go",
			"err := os.Remove(f.path(volume))", "err := error(nil)", "internal/mounter/device",
		},
	}
}
