"""A small file that is there whole or not at all, whatever crashes, and known when it has rotted.

It is written beside its place and synced before it is renamed, and the name is synced before this
returns: a crash before the rename leaves the old file, one after it the old or the new one.

Behind its content stands one line, `crc32c` and the checksum of the content in eight digits. A file
without that line is taken as it is: its reader finds out whether it makes sense.
"""

import re
from pathlib import Path

from crc32c import crc32c

from penstock.errors import Corruption
from penstock.log import Disk

_LAST_LINE = re.compile(rb"\ncrc32c ([0-9a-f]{8})\n\Z")


def put_small_file(disk: Disk, path: Path, data: bytes) -> None:
    """Put a file in place of another one, durably."""
    temporary = path.with_name(f"{path.name}.tmp")
    file = disk.create(temporary)
    file.write_at(0, [data + b"\ncrc32c %08x\n" % crc32c(data)])
    file.sync()
    file.close()
    disk.rename(temporary, path)
    disk.sync_directory(path.parent)


def read_small_file(disk: Disk, path: Path) -> bytes:
    """Return the content of a file; raise `Corruption` when its bytes have changed."""
    file = disk.open(path)
    data = bytes(file.read_at(0, file.size()))
    file.close()
    found = _LAST_LINE.search(data)
    if found is None:
        return data
    content = data[: found.start()]
    if crc32c(content) != int(found[1], 16):
        raise Corruption(f"{path} is damaged: its checksum does not match")
    return content
