"""What agents' models take, from their hosts' own files: the ledger of tokens, budgets, and usage limits. An optional
folder: no import leads into it from outside."""
