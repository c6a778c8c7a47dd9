"""Parts of tools/make_golden.py."""
