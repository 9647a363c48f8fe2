"""Build the Cython modules; everything else stands in pyproject.toml."""

import os
import re
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# Python's own flags ask for debug information, which makes a wheel seven times as large, and for
# -O3, which takes longer and gains nothing here. Whoever wants others says so.
FLAGS = [] if "CXXFLAGS" in os.environ else ["-O2", "-g0"]

# src/…, not runtime/…: Cython finds a module's own .pxd by the package's folders on disk.
ROOMS = [Path("src/cudnn_bindgen", room) for room in ("frontend/recording", "runtime")]
CORES = os.cpu_count() or 1
# On a package index there is no file beside this text that a link could lead to.
README = re.sub(
    r"\[([^]]+)\]\((?!https:)[^)]+\)",
    r"\1",
    Path("README.md").read_text("utf-8").partition("\n## Documentation\n")[0],
)

if __name__ == "__main__":  # what translates in parallel may import this file again
    # What a process that plans without a GPU gets for libcuda.so.1: it goes by this name.
    stub = Extension(
        "cudnn_bindgen.frontend.planning.driver_stub",
        ["src/cudnn_bindgen/frontend/planning/driver_stub.c"],
        extra_compile_args=["-O2", "-g0"],
        extra_link_args=["-Wl,-soname,libcuda.so.1", "-ldl"],
    )
    sources = [source for room in ROOMS for source in room.glob("*.pyx")]
    modules = cythonize(
        [
            Extension(
                ".".join(source.relative_to("src").with_suffix("").parts),
                [source.as_posix()],
                language="c++",
                include_dirs=[source.parent.as_posix(), (source.parent / "cpp").as_posix()],
                depends=[path.as_posix() for path in sorted(source.parent.rglob("*.hpp"))],
                extra_compile_args=["-std=c++17", *FLAGS],
            )
            # The largest first, so that no core ends with one alone.
            for source in sorted(sources, key=lambda path: (-path.stat().st_size, path))
        ],
        build_dir="build/cython",
        include_path=["src"],
        nthreads=CORES,
    )
    setup(
        long_description=README,
        long_description_content_type="text/markdown",
        ext_modules=[*modules, stub],
        options={"build_ext": {"parallel": CORES}},
    )
