"""The doors. Each protocol translates its wire format to the verbs of `broker` and back."""
