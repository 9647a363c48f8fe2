"""cudnn-bindgen: from a serialized cuDNN graph to a specialised Cython binding."""

# What type checkers take for true; importing typing would cost programs that only use a module.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from cudnn_bindgen.frontend.accelerating.accelerate import accelerate as accelerate
    from cudnn_bindgen.loading import load as load
    from cudnn_bindgen.frontend.recording.session import record as record

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """Import what is asked for: most users of a module need none of it."""
    try:
        if name == "accelerate":
            from cudnn_bindgen.frontend.accelerating.accelerate import accelerate

            return accelerate
        if name == "load":
            from cudnn_bindgen.loading import load

            return load
        if name == "record":
            from cudnn_bindgen.frontend.recording.session import record

            return record
    except ImportError as error:
        from cudnn_bindgen.extras import missing

        raise missing(error, f"cudnn_bindgen.{name}") from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
