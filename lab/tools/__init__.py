"""The lab's programs: what is built, from which pinned modules (`<family>/go.mod`), by which Go, into which cache."""
