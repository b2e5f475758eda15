"""What holds for every test: how long one takes is a benchmark's matter, never a reason to fail."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
