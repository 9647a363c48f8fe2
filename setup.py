"""Build the Cython modules; everything else stands in pyproject.toml."""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# Python's own flags ask for debug information, which makes a wheel seven times as large. Whoever
# wants it says so.
DEBUG = [] if "CXXFLAGS" in os.environ else ["-g0"]

# src/…, not runtime/…: Cython finds a module's own .pxd by the package's folders on disk.
ROOMS = [Path("src/cudnn_bindgen", room) for room in ("frontend/recording", "runtime")]

setup(
    ext_modules=cythonize(
        [
            Extension(
                ".".join(source.relative_to("src").with_suffix("").parts),
                [source.as_posix()],
                language="c++",
                include_dirs=[room.as_posix()],
                depends=[path.as_posix() for path in sorted(room.glob("*.hpp"))],
                extra_compile_args=["-std=c++17", *DEBUG],
            )
            for room in ROOMS
            for source in sorted(room.glob("*.pyx"))
        ],
        build_dir="build/cython",
        include_path=["src"],
    ),
    # As many compilers at once as there are cores.
    options={"build_ext": {"parallel": os.cpu_count() or 1}},
)
