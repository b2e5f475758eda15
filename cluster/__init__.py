"""Thin Kubernetes I/O for day-2 commands and dynamic providers; knows nothing of llm-d."""

from cluster.cluster import Cluster, ClusterError, Kind
from cluster.waiting import NotYet, wait_for

__all__ = ["Cluster", "ClusterError", "Kind", "NotYet", "wait_for"]
