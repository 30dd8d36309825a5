# Runs inside the control machine when this machine's veth has arrived there.
ip link set host master lan up
