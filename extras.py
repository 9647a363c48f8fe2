"""What to say where a package is missing that an extra brings."""

from __future__ import annotations

# What reads graph files, emits and compiles imports these.
BUILD = frozenset(
    {
        *("Cython", "click", "filelock", "jinja2", "msgspec", "platformdirs"),
        *("rich", "setuptools", "tomli", "ubjson"),
    }
)
INSTALL = "pip install 'cudnn-bindgen[build]'"


class MissingExtraError(ImportError):
    """A package of an extra is not installed; the message says how it comes."""


def missing(error: ImportError, what: str) -> ImportError:
    """Return what says that `what` needs an extra; `error` itself if an import failed otherwise."""
    name = (error.name or "").partition(".")[0]
    if name not in BUILD:
        return error
    return MissingExtraError(f"{what} needs {name}: {INSTALL} brings it", name=name)
