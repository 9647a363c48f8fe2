"""cudnn-bindgen: from a serialized cuDNN graph to a specialised Cython binding."""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Load `record` when it is asked for: most users of a module do not record."""
    if name == "record":
        from cudnn_bindgen.recording.session import record

        return record
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
