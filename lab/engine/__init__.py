"""The Pulumi engine of the lab: the CLI with hosts and providers of our own, where the machine has no official one."""
