# Runs inside the control machine: control-network.sh ADDRESS
# Its bridge is the network that all machines share.
ip link set lo up
ip link add lan type bridge
ip address add "$1/24" dev lan
ip link set lan up
echo 1 >/proc/sys/net/ipv4/ip_forward
