"""One question per module; `measure` answers it."""
