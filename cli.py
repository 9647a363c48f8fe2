"""The command line: which commands there are. Exit 1: not up to date, a problem; 2: bad input."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__" and sys.path[0] == os.getcwd():  # noqa: PTH109 - nothing is imported yet
    # That is where python -m looks first: a copy.py that lies there would be executed.
    del sys.path[0]

try:
    import click
except ImportError as error:
    from cudnn_bindgen.extras import missing

    print(f"error: {missing(error, 'cudnn-bindgen')}", file=sys.stderr)
    sys.exit(2)

from cudnn_bindgen import __version__
from cudnn_bindgen.commands.group import Group

# By text, so that none is imported for another.
_PLACES = {
    "build": "cudnn_bindgen.commands.build:build",
    "bundle": "cudnn_bindgen.commands.bundle:bundle",
    "config": "cudnn_bindgen.commands.config:config",
    "doctor": "cudnn_bindgen.commands.doctor:doctor",
    "emit": "cudnn_bindgen.commands.emit:emit",
    "gpus": "cudnn_bindgen.commands.gpus:gpus",
    "plan": "cudnn_bindgen.commands.plan:plan",
    "record": "cudnn_bindgen.commands.record:record",
    "report": "cudnn_bindgen.commands.record:report",
    "show": "cudnn_bindgen.commands.show:show",
}


@click.group(cls=Group, places=_PLACES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="cudnn-bindgen")
def main() -> None:
    """Emit and build Cython bindings specialised for serialized cuDNN graphs."""


if __name__ == "__main__":
    main()
