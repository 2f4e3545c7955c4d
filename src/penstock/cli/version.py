"""`penstock version`."""

from penstock import __version__
from penstock.cli.options import Json
from penstock.cli.output import Output


def version(as_json: Json = False) -> None:
    """Print the version of this package."""
    Output(as_json=as_json).show({"version": __version__}, f"penstock {__version__}")
