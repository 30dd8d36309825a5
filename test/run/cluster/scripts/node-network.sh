# Runs inside a node whose eth0 is plugged in: node-network.sh ADDRESS POD-NETWORK API-ADDRESS API-PORT API-SERVICE
address=$1
pods=$2
api=$3
port=$4
service=$5
ip link set lo up
ip address add "$address/24" dev eth0
ip link set eth0 up
ip route add default via "$api"
echo 1 >/proc/sys/net/ipv4/ip_forward
# The API server as a service is there before kube-proxy is, which adds the others.
for chain in PREROUTING OUTPUT; do
	iptables -w -t nat -A "$chain" -d "$service/32" -p tcp --dport 443 -j DNAT --to-destination "$api:$port"
done
# What is not a pod needs no route back to pods.
iptables -w -t nat -A POSTROUTING -s "$pods" ! -d 10.244.0.0/16 -j MASQUERADE
