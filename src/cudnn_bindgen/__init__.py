"""cudnn-bindgen: from a serialized cuDNN graph to a specialised Cython binding."""

__version__ = "0.1.0"
