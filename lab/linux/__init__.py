"""What a lab asks of the kernel: namespaces of its own, mounts that only it sees, and cgroups under its name."""
