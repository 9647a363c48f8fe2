"""What other build systems call: setuptools' hook, CMake's package."""
