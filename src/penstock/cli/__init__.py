"""The command `penstock`: one module for each command or group of commands.

Commands check what was typed, make one call after another through `penstock.client`, and print:
tables for people, JSON for programs. They hold no state and know nothing of the server's rooms;
only `serve` starts one and only `log` reads its files. Errors are told in one sentence with an exit
code that scripts can rely on, and never as a stack trace.
"""

from penstock.cli.main import main

__all__ = ["main"]
