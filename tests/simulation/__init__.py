"""Whole replica groups in one process, from one seed: crashes, cuts, torn writes, clocks."""
