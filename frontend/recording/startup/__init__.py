"""A folder for PYTHONPATH: its sitecustomize starts the recording of a program."""
