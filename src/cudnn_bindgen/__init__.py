"""cudnn-bindgen: from a serialized cuDNN graph to a specialised Cython binding."""

__version__ = "0.1.0"

__all__ = ["__version__", "accelerate", "load", "record"]


def __dir__() -> list[str]:
    """List what is there for users."""
    return __all__


def __getattr__(name: str) -> object:
    """Import what is asked for: most users of a module need none of it."""
    if name == "accelerate":
        from cudnn_bindgen.frontend.accelerating.accelerate import accelerate

        return accelerate
    if name == "load":
        from cudnn_bindgen.loading import load

        return load
    if name == "record":
        from cudnn_bindgen.frontend.recording.session import record

        return record
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
