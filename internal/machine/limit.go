package machine

// Limit is how many volumes a machine can have.
type Limit struct {
	// Max is the number that a flag gives; 0: the other fields count.
	Max int64
	// MaxDisks is how many disks the machine can have. Reserved of them are left to others, and Foreign counts its disks that are not volumes.
	MaxDisks, Reserved int64
	Foreign            func() (int64, error)
}

// Volumes returns how many volumes the machine can have now, in addition to its other disks. It is never 0, which would mean that there is no
// limit (failure A6): without a free place the cloud refuses the first attach, and the pod is scheduled elsewhere.
func (l Limit) Volumes() (int64, error) {
	if l.Max != 0 {
		return l.Max, nil
	}
	others, err := l.Foreign()
	if err != nil {
		return 0, err
	}
	return max(1, l.MaxDisks-others-l.Reserved), nil
}
