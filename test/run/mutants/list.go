package main

// mutants are the faults.
var mutants = []mutant{
	{
		"a hanging call does not stop those after it", "internal/wait/guard.go",
		"case <-ctx.Done():\n\t\tg.mu.Lock()", "case <-time.After(time.Hour):\n\t\tg.mu.Lock()", "internal/wait",
	},
	{
		"the file of a call without a caller stays open", "internal/wait/guard.go",
		"if f != nil {", "if f == nil {", "internal/wait",
	},
	{
		"a record of another disk lets mkfs run", "internal/mounter/format/format.go",
		"case req.FormatNonZero && req.BlankCreated, req.Begun == BegunOnDevice:",
		"case req.FormatNonZero && req.BlankCreated, req.Begun != NotBegun:", "internal/mounter/format",
	},
	{
		"a record outweighs a signature", "internal/mounter/format/format.go",
		"case (req.Begun == BegunOnDevice || id.unfinished) && id.is(req.Filesystem):", "case false:", "internal/mounter/format",
	},
	{
		"what a killed mkfs may have left is used unchecked", "internal/mounter/format/format.go",
		"req.Filesystem != mounter.LUKS:\n\t\treturn leftBehind, nil", "req.Filesystem != mounter.LUKS:\n\t\treturn usable, nil", "internal/mounter/format",
	},
	{
		"a part of a filesystem counts as complete", "internal/mounter/format/fsck.go",
		"if out.ExitCode != 0 {", "if out.ExitCode >= e2fsckUncorrected {", "internal/mounter/format",
	},
	{
		"an unfinished xfs is mounted", "internal/mounter/format/format.go",
		"(req.Begun == BegunOnDevice || id.unfinished) && id", "req.Begun == BegunOnDevice && id", "internal/mounter/format",
	},
	{
		"an unfinished xfs is formatted without a record", "internal/mounter/format/format.go",
		"case req.Begun == BegunOnDevice && id.unfinished && id", "case id.unfinished && id", "internal/mounter/format",
	},
	{
		"formatNonZero formats what this driver did not create blank", "internal/mounter/format/format.go",
		"case req.FormatNonZero && req.BlankCreated, req", "case req.FormatNonZero, req", "internal/mounter/format",
	},
	{
		"a read error in the probe counts as blank", "internal/mounter/format/probe.go",
		"if err := host.ReadFull(r, chunk, from); err != nil {\n\t\t\t\treturn -1, err", "if err := host.ReadFull(r, chunk, from); err != nil {\n\t\t\t\treturn -1, nil", "internal/mounter/format",
	},
	{
		"the last MiB is not read", "internal/mounter/format/probe.go",
		"{max(0, size-probeEnds), size}, ", "", "internal/mounter/format",
	},
	{
		"a superblock that blkid passes over counts as blank", "internal/mounter/format/format.go",
		"case id.nothing() && (super == \"\" ||", "case id.nothing() && (true ||", "internal/mounter/format",
	},
	{
		"the kernel's number of the disk is not compared", "internal/mounter/device/records.go",
		" && now.Sequence != 0", "", "internal/mounter/device",
	},
	{
		"a format record that cannot be read counts as none", "internal/mounter/device/records.go",
		"if errors.Is(err, fs.ErrNotExist) {\n\t\treturn false, false, nil", "if err != nil {\n\t\treturn false, false, nil", "internal/mounter/device",
	},
	{
		"the end of a format leaves its record", "internal/mounter/device/records.go",
		"err := os.Remove(f.path(volume))", "err := error(nil)", "internal/mounter/device",
	},
	{
		"a change of a volume does not exclude another", "internal/driver/locks.go",
		"n == alone || (n > 0 && !k.shared)", "n > 0 && !k.shared", "internal/driver",
	},
	{
		"a change begins while others share the volume", "internal/driver/locks.go",
		"n == alone || (n > 0 && !k.shared)", "n == alone", "internal/driver",
	},
	{
		"sharing a volume excludes others that share it", "internal/driver/locks.go",
		"(n > 0 && !k.shared)", "n > 0", "internal/driver",
	},
	{
		"one that leaves frees the lock of all that share it", "internal/driver/locks.go",
		"l.held[k.name] = n - 1", "delete(l.held, k.name)", "internal/driver",
	},
	{
		"a lock is freed twice", "internal/driver/locks.go",
		"sync.OnceFunc(func() { l.free(locks) })", "func() { l.free(locks) }", "internal/driver",
	},
	{
		"volumes and snapshots of one id share a lock", "internal/driver/locks.go",
		`Lock{name: "snapshot " + id}`, `Lock{name: "volume " + id}`, "internal/driver",
	},
	{
		"one volume has a lock for each spelling of its handle", "internal/driver/controller/service.go",
		"driver.OfVolume(string(s.volumeID(handle)))", "driver.OfVolume(handle)", "internal/driver/controller",
	},
	{
		"changes of one volume take no lock", "internal/driver/controller/service.go",
		"return s.locks.Acquire(driver.OfVolume(string(s.volumeID(handle))))", "return func() {}, nil", "internal/driver/controller",
	},
	{
		"what volumes may still allocate is not reserved", "internal/pool/files/space.go",
		"reserved += reservation(e)", "_ = e", "internal/pool/files",
	},
	{
		"the floor may be used", "internal/pool/files/space.go",
		"s.free-floor(s.total)-reserved", "s.free-reserved", "internal/pool/files",
	},
	{
		"a volume larger than the free space is admitted", "internal/pool/files/create.go",
		"if r.Size > u.Free {", "if r.Size > u.Size {", "internal/pool/files",
	},
	{
		"a growth that was cut off reserves nothing", "internal/pool/files/space.go",
		"max(e.Size, reservedBy(e.Record))-e.Allocated", "e.Record.Size-e.Allocated", "internal/pool/files",
	},
	{
		"shared blocks count once however many images have them", "internal/pool/files/space.go",
		"total += min(e.length, max(0, end-e.start))", "total += 0 * end", "internal/pool/files",
	},
	{
		"the farthest end of shared blocks is forgotten", "internal/pool/files/space.go",
		"end = max(end, e.start+e.length)", "end = e.start + e.length", "internal/pool/files",
	},
	{
		"a create that failed leaves its files", "internal/pool/files/create.go",
		"if err := p.erase(r.Ref()); err != nil {", "if err := error(nil); err != nil {", "internal/pool/files",
	},
	{
		"the image of a volume is not whole when its record says ready", "internal/pool/files/create.go",
		"if err := p.disk.createImage(ctx, p.file(ref, imageExt), r.Size); err != nil {\n\t\treturn err\n\t}\n", "", "internal/pool/files",
	},
	{
		"the copy of another volume is formatted", "internal/mounter/format/format.go",
		"case req.HasContent && req.History == HistoryUnknown:", "case false:", "internal/mounter/format",
	},
	{
		"a disk smaller than promised is formatted", "internal/mounter/format/format.go",
		"if size < promised {", "if size < 0 {", "internal/mounter/format",
	},
	{
		"what was written to and reads as zeros is formatted", "internal/mounter/format/format.go",
		"case req.History == Written:", "case false:", "internal/mounter/format",
	},
	{
		"a disk that does not read as zeros is formatted", "internal/mounter/format/format.go",
		"case nonZero >= 0:", "case false:", "internal/mounter/format",
	},
}
