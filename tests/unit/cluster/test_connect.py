"""What a user reads when there is no cluster to talk to."""

import pytest

from cluster import Cluster, ClusterError

NOBODY_LISTENS = """
apiVersion: v1
kind: Config
current-context: a
contexts: [{name: a, context: {cluster: a, user: a}}]
users: [{name: a, user: {}}]
clusters: [{name: a, cluster: {server: "http://127.0.0.1:9"}}]
"""


@pytest.mark.parametrize(
    ("kubeconfig", "said"),
    [
        ("", "No configuration found"),
        ("apiVersion: v1\nkind: Config\nclusters: []\n", "current-context"),
        (NOBODY_LISTENS, "port=9"),
    ],
)
def test_a_cluster_that_cannot_be_reached_is_one_kind_of_error(tmp_path, kubeconfig, said):
    path = tmp_path / "kubeconfig"
    if kubeconfig:
        path.write_text(kubeconfig)
    with pytest.raises(ClusterError, match=said):
        Cluster.connect(path)
