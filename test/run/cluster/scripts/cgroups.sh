# Runs inside a machine's namespaces: cgroups.sh v2, or cgroups.sh FOLDER=OPTIONS...
# Mounted here, each hierarchy begins at the machine's own cgroup.
if [ "$1" = v2 ]; then
	mount -t cgroup2 cgroup /sys/fs/cgroup
	exit
fi
mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup
for hierarchy; do
	folder=/sys/fs/cgroup/${hierarchy%%=*}
	mkdir "$folder"
	mount -t cgroup -o "${hierarchy#*=}" cgroup "$folder"
done
