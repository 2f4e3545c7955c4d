"""A small file that is there whole or not at all, whatever crashes.

It is written beside its place and synced before it is renamed, and the name is synced before this
returns: a crash before the rename leaves the old file, one after it the old or the new one.
"""

from pathlib import Path

from penstock.log import Disk


def put_small_file(disk: Disk, path: Path, data: bytes) -> None:
    """Put a file in place of another one, durably."""
    temporary = path.with_name(f"{path.name}.tmp")
    file = disk.create(temporary)
    file.write_at(0, [data])
    file.sync()
    file.close()
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)
