"""Notebooks, run from top to bottom in a kernel of their own.

python tests/support/notebooks.py FILE      run it and store its outputs
"""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

_SECONDS = 300  # for a cell


def run_notebook(path: Path, *more: str) -> nbformat.NotebookNode:
    """The notebook with the outputs of its cells, and of `more` cells before the last one. It is run in its folder."""
    notebook = nbformat.read(path, as_version=4)
    metadata = copy.deepcopy(notebook.metadata)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    notebook.cells[-1:-1] = [nbformat.v4.new_code_cell(code) for code in more]
    resources = {"metadata": {"path": str(path.parent)}}
    NotebookClient(notebook, timeout=_SECONDS, resources=resources, record_timing=False).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":  # Java's messages name the machine
            cell.outputs = [each for each in cell.outputs if each.get("name") != "stderr"]
    notebook.metadata = metadata  # without the version of Python
    return notebook


def texts(cell: Any) -> list[str]:
    """What a cell prints, however many messages its kernel sent, and then its other outputs. A picture is its size."""
    if cell.cell_type != "code":
        return []
    printed = "".join(each.text for each in cell.outputs if each.output_type == "stream")
    return [printed, *(each.data["text/plain"] for each in cell.outputs if each.output_type != "stream")]


if __name__ == "__main__":
    file = Path(sys.argv[1])
    nbformat.write(run_notebook(file), file)
