"""What `accelerate` raises and warns of."""

from __future__ import annotations


class AccelerateError(RuntimeError):
    """A graph cannot be accelerated; the message says why. Its own `execute` works as before."""


class AccelerateWarning(UserWarning):
    """Something is slower than it could be, but right."""
