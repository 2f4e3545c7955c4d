"""Lets `python -m penstock.cli` do what `penstock` does."""

import sys

from penstock.cli import main

sys.exit(main())
