"""What happened when, drawn and told, and statistics of it. An optional folder: no import leads into it from
outside."""
