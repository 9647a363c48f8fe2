"""A model that calls two cuDNN graphs."""

from mymodel.attn import run as attend
from mymodel.dense import run as dense

__all__ = ["attend", "dense"]
