"""A picture → SVG, laid out by Graphviz."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr

from cudnn_bindgen.codegen.errors import EmitError
from cudnn_bindgen.codegen.render.dot import to_dot
from cudnn_bindgen.codegen.render.picture import Picture

# Graphviz takes seconds for more, and nobody reads it.
_MOST = 2000


def to_svg(picture: Picture) -> str:
    """Return a picture as SVG.

    Raises
    ------
    EmitError
        It is too large, or there is no pygraphviz.
    """
    size = len(picture.boxes) + len(picture.arrows)
    if size > _MOST:
        raise EmitError(
            f"--svg: expected a graph of at most {_MOST} boxes and arrows, got {size}: "
            "--dot has no limit"
        )
    try:
        from pygraphviz import AGraph
    except ImportError:
        raise EmitError(
            "--svg: expected pygraphviz, got none: python -m pip install 'cudnn-bindgen[svg]', or "
            "--dot | dot -Tsvg"
        ) from None
    with _without_words():
        svg: bytes = AGraph(string=to_dot(picture)).draw(format="svg", prog="dot")
    return svg.decode()


@contextmanager
def _without_words() -> Iterator[None]:
    """Drop what the libraries write to standard error: about the machine's fonts, about time."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
