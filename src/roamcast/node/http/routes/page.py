"""The page and its files."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI
from fastapi.responses import FileResponse
from fastapi.staticfiles import StaticFiles
from xstatic.pkg import leaflet

router = APIRouter(include_in_schema=False)

_FOLDER = Path(__file__).parent.parent / "page"


@router.get("/")
async def index() -> FileResponse:
    return FileResponse(_FOLDER / "index.html")


def mount_files(app: FastAPI) -> None:
    app.mount("/static/leaflet", StaticFiles(directory=leaflet.BASE_DIR))
    app.mount("/static", StaticFiles(directory=_FOLDER))
