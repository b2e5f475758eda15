"""What the lab's network namespace looks like: addresses, routes, and why nothing in it can reach outside.

A namespace made by `ip netns add` would outlive the lab; this one ends with the lab's last process.
"""

import subprocess
from pathlib import Path

NODE_LINK = "lab0"
NODE_IP = "10.243.0.2"  # next to, and outside of, the pods' 10.244.0.0/24
NODE_NETWORK = f"{NODE_IP}/24"
GATEWAY = "10.243.0.1"  # nobody answers there: a default route is only what makes the parts find the node's address

POD_CIDR = "10.244.0.0/24"
SERVICE_CIDR = "10.96.0.0/16"
API_SERVICE_IP = "10.96.0.1"  # the first address of SERVICE_CIDR, by Kubernetes's own rule
CLUSTER_DNS = "10.96.0.10"
CLUSTER_DOMAIN = "cluster.local"
API_PORT = 6443


def commands() -> tuple[tuple[str, ...], ...]:
    """Commands that build the node's side of the network, to be run inside the namespace in this order."""
    return (
        ("ip", "link", "set", "lo", "up"),
        ("ip", "link", "add", NODE_LINK, "type", "bridge"),  # some kernels have no `dummy` type; every node has bridges
        ("ip", "address", "add", NODE_NETWORK, "dev", NODE_LINK),
        ("ip", "link", "set", NODE_LINK, "up"),
        ("ip", "route", "add", "default", "via", GATEWAY, "dev", NODE_LINK),
    )


def build() -> None:
    """Run `commands()` and let packets pass between pods; raises CalledProcessError with the tool's own words."""
    for command in commands():
        subprocess.run(command, check=True, capture_output=True, text=True)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
