"""The lab's images: which there are, what their layers hold, and how they get into the node's containerd."""
