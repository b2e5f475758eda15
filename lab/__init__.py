"""A real one-node Kubernetes in a box, with GPU-less stand-ins for what needs a GPU."""
