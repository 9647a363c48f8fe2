"""The command line as ``python -m cudnn_bindgen``."""

import runpy

if __name__ == "__main__":
    runpy.run_module("cudnn_bindgen.cli", run_name="__main__")
