"""Builds the emitted module and the code that calls it, in place."""

from Cython.Build import cythonize
from setuptools import Extension, setup

# layers.pyx says itself that it is C++; what is emitted is C.
MODULES = [Extension(name, [f"{name}.pyx"]) for name in ("dense", "layers")]

setup(name="cython-caller", ext_modules=cythonize(MODULES))
