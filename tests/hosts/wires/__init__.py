"""The streamed dialects the hosts speak to their models, one file each."""
