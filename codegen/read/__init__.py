"""Graph files → graphs."""
