"""Build the runtime's Cython modules; everything else stands in pyproject.toml."""

from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

# src/…, not runtime/…: Cython finds a module's own .pxd by the package's folders on disk.
RUNTIME = Path("src/cudnn_bindgen/runtime")

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"cudnn_bindgen.runtime.{source.stem}",
                [source.as_posix()],
                language="c++",
                include_dirs=[RUNTIME.as_posix()],
                depends=[path.as_posix() for path in sorted(RUNTIME.glob("*.hpp"))],
                extra_compile_args=["-std=c++17"],
            )
            for source in sorted(RUNTIME.glob("*.pyx"))
        ],
        build_dir="build/cython",
        include_path=["src"],
    )
)
