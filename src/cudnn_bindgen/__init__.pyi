"""cudnn-bindgen: from a serialized cuDNN graph to a specialised Cython binding."""

from cudnn_bindgen.frontend.accelerating.accelerate import accelerate as accelerate
from cudnn_bindgen.frontend.recording.session import record as record
from cudnn_bindgen.loading import load as load

__version__: str
