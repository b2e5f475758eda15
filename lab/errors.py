"""What the lab's commands say in words instead of a traceback."""


class LabError(RuntimeError):
    """The lab cannot do what was asked; the message says why, and what a person can do."""
