"""Let Spark's Python processes import pyspark from its installed folder.

Spark puts a zip file of its Python modules first on their path. Python compiles modules of a zip file again in each
process, which takes half a second, and Spark starts half a dozen processes before the first batch. Archives of
another installation of Spark stay on the path.

Garbage is looked for less often: most of what they allocate is modules. Looking in these takes a quarter of the start.

This takes the place of another module `sitecustomize` of the environment, which is run afterwards.
"""

from __future__ import annotations

import gc
import os
import sys
from importlib.machinery import PathFinder
from importlib.util import module_from_spec

gc.set_threshold(50_000)


def _is_copy_of_installed(entry: str) -> bool:
    """Whether it is pyspark/python/lib/*.zip or pyspark/jars/*.jar of a folder that is on the path."""
    package = os.path.realpath(entry.partition(f"{os.sep}pyspark{os.sep}")[0])
    return entry.endswith((".zip", ".jar")) and package in _folders and package != os.path.realpath(entry)


_folders = {os.path.realpath(entry) for entry in sys.path}  # the environment may be a link, which Spark resolves
_here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes longer to import
sys.path[:] = [entry for entry in sys.path if entry != _here and not _is_copy_of_installed(entry)]

_other = PathFinder.find_spec(__name__, sys.path)
if _other is not None and _other.loader is not None:
    _other.loader.exec_module(module_from_spec(_other))
