"""A model that calls two cuDNN graphs."""

from mymodel.attn import run as attend
from mymodel.dense import run as project

__all__ = ["attend", "project"]
