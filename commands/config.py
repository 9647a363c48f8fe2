"""The command line for build scripts: ``cudnn-bindgen config``."""

from __future__ import annotations

from pathlib import Path

import click

import cudnn_bindgen
from cudnn_bindgen.codegen.errors import EmitError

_PACKAGE = Path(cudnn_bindgen.__file__).parent
# In the order of the options, which is that of the lines.
_VALUES = {
    "include_dir": str(_PACKAGE.parent),
    "cmake_dir": str(_PACKAGE / "build_systems" / "cmake"),
    "version": cudnn_bindgen.__version__,
}


@click.command(
    epilog="""\b
Examples:
  cudnn-bindgen config --include-dir    # cython -I "$(cudnn-bindgen config --include-dir)" attn.pyx
  cudnn-bindgen config --cmake-dir      # cmake -B build -D cudnn_bindgen_DIR="$(...)"
"""
)
@click.option("--include-dir", is_flag=True, help="Folder for cython -I.")
@click.option("--cmake-dir", is_flag=True, help="Folder of what find_package(cudnn_bindgen) reads.")
@click.option("--version", is_flag=True, help="Version of cudnn-bindgen.")
def config(**asked: bool) -> None:
    """Print what build scripts ask for, a line for each option."""
    if not any(asked.values()):
        options = ", ".join(f"--{name.replace('_', '-')}" for name in _VALUES)
        raise EmitError(f"config: expected {options}, got none")
    for name, value in _VALUES.items():
        if asked[name]:
            click.echo(value)
