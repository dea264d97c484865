"""Usage: what agents' models took, from their hosts' own files."""
