"""Builds the emitted module and the code that calls it, in place."""

from Cython.Build import cythonize
from setuptools import Extension, setup

# C++ for both: the runtime's declarations, which dense.pyx cimports, need it.
MODULES = [Extension(name, [f"{name}.pyx"], language="c++") for name in ("dense", "layers")]

setup(name="cython-caller", ext_modules=cythonize(MODULES))
