"""Text in, text out: from the bytes of a graph file to the text of a binding (docs/design.md)."""
