"""Bindings → the text of files, and tables for people."""
