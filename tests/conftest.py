"""What all tests share: no deadline for hypothesis, since a busy machine is no flaw of what is tested."""

from hypothesis import settings

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")
