"""Programs that stand in for what needs a GPU or cannot be had as a package; each runs as an image of the lab."""
