# Runs inside a node: metadata.sh ADDRESS:PORT
# As in a cloud, the node and its pods find the metadata service of their machine at one address.
for chain in PREROUTING OUTPUT; do
	iptables -w -t nat -A "$chain" -d 169.254.169.254/32 -p tcp --dport 80 -j DNAT --to-destination "$1"
done
