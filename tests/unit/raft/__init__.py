"""Tests of the consensus core; `group` drives replicas, `referee` checks what must always hold."""
