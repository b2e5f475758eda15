"""Environments: what their configuration may say, and the composition root that builds one."""
