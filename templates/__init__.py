"""The templates of a generated module, shaped like their output."""
