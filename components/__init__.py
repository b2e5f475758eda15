"""The parts of a model stack, one component per file; each turns values into Kubernetes objects."""
