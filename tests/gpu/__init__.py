"""A package, so that these files may have the names of those in tests/."""
