"""The folder of the CMake package, which scikit-build-core finds as a module."""
