"""Work that waits for whoever is free (docs/protocol.md, Whoever is free). An optional folder: no import leads into it
from outside."""
